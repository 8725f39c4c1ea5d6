"""What a backend will cost: a few measured prices, times the work that there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from jat_graph.operators.threshold import KEPT_KEYS

# One matrix A may take this much of a device's memory before `auto` does without it.
LARGEST_MATRIX = 2**31  # bytes
PRICES = ("vote", "entry", "multiply", "rank", "row")


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


def predict(backend: str, work: Workload, prices: Mapping[str, float]) -> float:
    """Return the time that a backend will take.

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


# Read once, at import: torch.compile cannot trace the reading of a file.
_TABLE = json.loads(files("jat_graph.operators").joinpath("costs.json").read_text("utf-8"))


def prices_of(device: str) -> tuple[dict[str, float], str]:
    """Return the measured prices of a kind of device, and where they were measured.

    ``jat-graph bench costs`` measures them again.
    """
    if device in _TABLE:
        return _TABLE[device]["nanoseconds"], f"measured on {_TABLE[device]['machine']}"
    stand_in, where = prices_of("cpu")
    return stand_in, f"no measurement for {device}: prices of the CPU, {where}"
