"""Which backend runs: what each cannot do, and which of the others is cheapest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

from jat_graph.config import JatConfig
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators.base import Operator
from jat_graph.operators.blocked import BlockedOperator
from jat_graph.operators.dense import DenseOperator
from jat_graph.operators.sparse import SparseOperator
from jat_graph.operators.threshold import KEPT_KEYS, ThresholdOperator
from jat_graph.voting.ballot import Ballot

# One matrix A may take this much of a device's memory before `auto` does without it.
LARGEST_MATRIX = 2**31  # bytes
# In nanoseconds: a vote, an entry of A, a multiplication by one entry and feature, ranking a token
# for a key, one feature of a row.
PRICES = ("vote", "entry", "multiply", "rank", "row")

# Read once, at import: torch.compile cannot trace the reading of a file.
_TABLE = json.loads(files("jat_graph.operators").joinpath("costs.json").read_text("utf-8"))


@dataclass(frozen=True)
class Workload:
    """The work that an operator will do, for one layer and step.

    Args:
        graphs: Sequences times heads, B · H.
        length: Tokens L.
        num_keys: Voting keys U.
        width: Features that one product multiplies.
        products: Products that will be taken, those of backward included.
        causal: Whether a query joins earlier tokens only.
    """

    graphs: int
    length: int
    num_keys: int
    width: int
    products: int = 1
    causal: bool = False

    @property
    def matrix_bytes(self) -> int:
        """Size of A in float32."""
        return 4 * self.graphs * self.length**2


@dataclass(frozen=True)
class BackendChoice:
    """Which backend runs, and why.

    Args:
        backend: ``"dense"``, ``"sparse"`` or ``"threshold"``.
        why: One sentence.
        milliseconds: What the cost model predicts for each backend that could run; empty if it
            was not asked.
    """

    backend: str
    why: str
    milliseconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}"


def build_operator(config: JatConfig, ballot: Ballot, backend: str) -> Operator:
    """Return A by a backend; nothing falls back.

    Args:
        config: The variants.
        ballot: Who votes on which pairs.
        backend: ``"dense"``, ``"sparse"`` or ``"threshold"``.

    Returns:
        The operator for A.

    Raises:
        ValueError: If the backend cannot run; the message lists every reason.
    """
    reasons = unsupported(backend, config, ballot.mask)
    if reasons:
        raise ValueError(f"backend {backend!r} cannot run: {'; '.join(reasons)}")
    if backend == "dense":
        return DenseOperator.from_ballot(ballot)
    if backend == "sparse":
        return SparseOperator.from_ballot(ballot)
    return BlockedOperator(ballot) if ballot.mask.causal else ThresholdOperator(ballot)


def unsupported(backend: str, config: JatConfig, mask: TokenMask) -> list[str]:
    """Say why a backend cannot run.

    Args:
        backend: ``"dense"``, ``"sparse"`` or ``"threshold"``.
        config: The variants.
        mask: Which query may attend to which key.

    Returns:
        One phrase a reason; empty if it can.
    """
    reasons = []
    if backend != "dense" and config.soft_temperature is not None:
        reasons.append("soft votes need every pair; use 'dense'")
    if backend == "threshold" and mask.pairs is not None:
        reasons.append("it takes padding and causal masks only; use 'dense'")
    return reasons


def choose_backend(
    config: JatConfig, mask: TokenMask, work: Workload, device: str
) -> BackendChoice:
    """Return the config's backend, or for ``"auto"`` the cheaper one of dense and threshold.

    Args:
        config: ``backend`` and the variants.
        mask: Which query may attend to which key.
        work: What the operator will have to do.
        device: The kind of device that it runs on.

    Returns:
        The backend and why.
    """
    if config.backend != "auto":
        return BackendChoice(config.backend, "the config asks for it")
    reasons = unsupported("threshold", config, mask)
    if reasons:
        return BackendChoice("dense", f"'threshold' cannot run: {'; '.join(reasons)}")
    prices, where = prices_of(device)
    costs = {name: predict(name, work, prices) for name in ("dense", "threshold")}
    if work.matrix_bytes > LARGEST_MATRIX:
        size = work.matrix_bytes / 2**30
        return BackendChoice("threshold", f"a dense A would take {size:.1f} GiB", costs)
    cheaper, dearer = "dense", "threshold"
    if costs[dearer] < costs[cheaper]:
        cheaper, dearer = dearer, cheaper
    why = (
        f"{costs[cheaper]:.3g} ms against {costs[dearer]:.3g} ms by {dearer!r} for "
        f"{work.num_keys} keys, {work.length} tokens and {work.products} products of "
        f"{work.width} features ({where})"
    )
    return BackendChoice(cheaper, why, costs)


def predict(backend: str, work: Workload, prices: Mapping[str, float]) -> float:
    """Return the milliseconds that a backend will take.

    Dense counts half of the pairs once and multiplies by all of them. Threshold ranks the tokens of
    each key, again for each product if there are too many keys to keep, and adds one row a token
    and key. Under a causal mask it counts again, block by block, for the degrees and each product.
    """
    pairs = work.graphs * work.length**2
    features = work.width * work.products
    count = prices["vote"] * pairs * work.num_keys / 2 + prices["entry"] * pairs
    multiply = prices["multiply"] * pairs * features
    if backend == "dense":
        return (count + multiply) / 1e6
    if work.causal:
        return (count * (1 + work.products) + multiply / 2) / 1e6
    tokens = work.graphs * work.num_keys * work.length
    rankings = 1 if work.num_keys <= KEPT_KEYS else 1 + work.products
    return tokens * (prices["rank"] * rankings + prices["row"] * features) / 1e6


def prices_of(device: str) -> tuple[dict[str, float], str]:
    """Return the measured prices of a kind of device, and a phrase: where they were measured.

    ``jat-graph bench costs`` measures them again.
    """
    if device in _TABLE:
        return _TABLE[device]["nanoseconds"], f"measured on {_TABLE[device]['machine']}"
    stand_in, where = prices_of("cpu")
    return stand_in, f"no measurement for {device}: prices of the CPU, {where}"
