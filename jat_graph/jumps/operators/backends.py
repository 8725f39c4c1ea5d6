"""Which backend runs: what each cannot do, and which of the others is cheapest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files

import torch

from jat_graph.core.compiling import in_transform
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.stones import StoneIncidence, expected_share
from jat_graph.jumps.config import ClusterGraph, JatConfig, PairGraph, StoneGraph
from jat_graph.jumps.operators.base import KEPT_KEYS, DenseOperator, Operator
from jat_graph.jumps.operators.sparse import SparseOperator
from jat_graph.jumps.operators.stones import SparseStoneOperator, StoneOperator
from jat_graph.jumps.operators.threshold import BlockedOperator

# One matrix A or B may take this much of a device's memory before `auto` does without it.
LARGEST_MATRIX = 2**31  # bytes
# Prices in nanoseconds: a vote, an entry of A, a multiplication by one entry and feature, ranking a
# token for a key, one feature of a row. Of stones: an entry of B (incidence); finding out whether
# it is a link (search); a multiplication by one link and feature.
# Read once, at import: torch.compile cannot trace the reading of a file.
_TABLE = json.loads(files("jat_graph.jumps.operators").joinpath("costs.json").read_text("utf-8"))


@dataclass(frozen=True)
class Workload:
    """The work that an operator will do, for one layer and step."""

    graphs: int  # sequences times heads, B · H
    length: int  # tokens L
    num_keys: int  # voting keys U; with stones the columns of B
    width: int  # features that one product multiplies
    products: int = 1  # that will be taken, those of backward included
    causal: bool = False
    backward: bool = False
    linked: float | None = None  # the expected share of the entries of B that are links


@dataclass(frozen=True)
class BackendChoice:
    """Which backend runs, and why.

    Args:
        backend: ``"dense"``, ``"sparse"`` or ``"threshold"``.
        why: One sentence.
        milliseconds: What the cost model predicts for each that could run; empty if not asked.
    """

    backend: str
    why: str
    milliseconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}"


def build_operator(
    config: JatConfig, fixed: PairAdjacency | StoneIncidence, backend: str
) -> Operator:
    """Return A by a backend, or P of stones; nothing falls back."""
    if reasons := unsupported(backend, config, fixed.mask):
        raise ValueError(f"backend {backend!r} cannot run: {'; '.join(reasons)}")
    if isinstance(fixed, StoneIncidence):
        if backend == "sparse":
            return SparseStoneOperator(fixed)
        return StoneOperator(fixed.links(), fixed.rule.self_weight, fixed.mask.causal)
    if backend == "dense":
        return DenseOperator.of_pairs(fixed)
    graph = config.graph
    if backend == "sparse" and isinstance(graph, PairGraph):
        return SparseOperator.of_pairs(fixed, graph.max_neighbors)
    from jat_graph.jumps.operators.threshold import ThresholdOperator  # its loops come with it

    return BlockedOperator(fixed) if fixed.mask.causal else ThresholdOperator(fixed)


def unsupported(backend: str, config: JatConfig, mask: TokenMask) -> list[str]:
    """Say why a backend cannot run, one phrase a reason."""
    graph = config.graph
    votes = isinstance(graph, PairGraph) and graph.soft_temperature is not None
    soft = {"soft votes need every pair": votes}
    masks = {"it takes padding and causal masks only": mask.pairs is not None}
    func = {"torch.func does not support it; torch.autograd does": in_transform()}
    sigmoid = isinstance(graph, StoneGraph) and graph.incidence == "sigmoid"
    against = {  # what holds of each kind of graph and backend
        ("pairs", "sparse"): soft,
        ("pairs", "threshold"): soft | masks | func,
        ("stones", "sparse"): {
            **func,
            "in causal order a stone has a sum for each token": mask.causal,
            "a sigmoid links every token to every stone": sigmoid,
            "a layer runs on the links, which it does not hold": config.conv is not None,
            "torch.compile cannot trace it": torch.compiler.is_compiling(),
        },
    }
    reasons = against.get((graph.kind, backend), {})
    return [f"{reason}; use 'dense'" for reason, holds in reasons.items() if holds]


def work_for(
    config: JatConfig, fixed: PairAdjacency | StoneIncidence, width: int, hops: int, backward: bool
) -> Workload:
    """Return the work of so many products forward, and backward if gradients will flow."""
    batch, heads, length = fixed.source.shape
    # Backward multiplies for the features, with stones for the links, too.
    num_keys, linked, again = fixed.num_keys, None, int(backward)
    if isinstance(config.graph, StoneGraph):
        num_keys *= 2 if config.graph.sides == "both" else 1
        linked, again = expected_share(config.graph), 2 * again
    return Workload(
        graphs=batch * heads,
        length=length,
        num_keys=num_keys,
        width=width,
        products=hops * (1 + again),
        causal=fixed.mask.causal,
        backward=backward,
        linked=linked,
    )


def choose_backend(
    config: JatConfig, mask: TokenMask, work: Workload, device: str
) -> BackendChoice:
    """Return the config's backend; for ``"auto"`` the cheaper one of two that could run."""
    graph, linked, width, num_keys = config.graph, work.linked, work.width, work.num_keys
    if isinstance(graph, PairGraph) and (config.conv or graph.max_neighbors):
        backend = "sparse" if graph.soft_temperature is None else "dense"
        return BackendChoice(backend, "edges are pruned, or a layer runs on them")
    assert not isinstance(graph, ClusterGraph)  # which has no operator
    if graph.backend != "auto":
        return BackendChoice(graph.backend, "the settings ask for it")
    other, matrix = ("threshold", "A") if linked is None else ("sparse", "B")
    if reasons := unsupported(other, config, mask):
        return BackendChoice("dense", f"{other!r} cannot run: {'; '.join(reasons)}")
    prices, where = prices_of(device)
    costs = {name: predict(name, work, prices) for name in ("dense", other)}
    size = 4 * work.graphs * work.length * (work.length if linked is None else num_keys)
    cheaper, dearer = ("dense", other) if costs["dense"] <= costs[other] else (other, "dense")
    tracing = torch.compiler.is_compiling()  # when a number in a text would be fixed
    if size > LARGEST_MATRIX:
        why = "" if tracing else f"a dense {matrix} would take {size / 2**30:.1f} GiB"
        return BackendChoice(other, why, costs)
    if linked is not None and device not in _TABLE:
        return BackendChoice("dense", f"links have no measured price on {device}")
    if linked is not None and num_keys <= width:
        why = "" if tracing else f"B, {num_keys} columns, is no wider than the {width} features"
        return BackendChoice("dense", why)
    if tracing:
        return BackendChoice(cheaper, "", costs)
    columns = "keys" if linked is None else "columns of B"
    why = (
        f"{costs[cheaper]:.3g} ms against {costs[dearer]:.3g} ms by {dearer!r} for "
        f"{num_keys} {columns}, {work.length} tokens and {work.products} products of "
        f"{width} features ({where})"
    )
    return BackendChoice(cheaper, why, costs)


def predict(backend: str, work: Workload, prices: Mapping[str, float]) -> float:
    """Return the milliseconds that a backend will take."""
    # Dense counts half of the pairs once and multiplies by all of them. Threshold ranks the tokens
    # of each key, again for each product if there are too many keys to keep, and adds one row a
    # token and key. Under a causal mask it counts again, block by block, for the degrees and each
    # product. With stones a product is two multiplications, by B and its transpose. Dense makes B
    # once, and once more backward. Sparse finds the links in each product, and multiplies by those.
    if work.linked is not None:
        entries = work.graphs * work.length * work.num_keys
        both = 2 * entries * work.width * work.products
        if backend == "dense":
            made = entries * (2 if work.backward else 1)
            return (prices["incidence"] * made + prices["multiply"] * both) / 1e6
        search = prices["search"] * entries * work.products
        return (search + prices["link"] * work.linked * both) / 1e6
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
    """Return the measured prices of a kind of device, and a phrase: where they were measured."""
    # `python -m examples.bench costs` measures them again.
    if device in _TABLE:
        return _TABLE[device]["nanoseconds"], f"measured on {_TABLE[device]['machine']}"
    stand_in, where = prices_of("cpu")
    return stand_in, f"no measurement for {device}, so those of the CPU, {where}"
