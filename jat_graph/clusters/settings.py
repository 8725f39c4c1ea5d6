"""The settings of heads that read along trees."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from jat_graph.clusters.choice import Rule
from jat_graph.clusters.tree import check_segment
from jat_graph.core.fields import (
    GraphSettings,
    Table,
    check_table,
    check_threshold,
    checked,
    integer,
)
from jat_graph.core.numbers import check_flag, check_integer

# How heads of encoders read, and those in causal order, where settings do not say it. They are from
# measurements; below so many tokens SDPA is faster. One number: evaluation reads as training does.
MEASURED = {
    False: Rule(keys=128, groups=16, window=0, dense_below=4096, causal=False),
    True: Rule(dense_below=4096),
}
# Tokens below which trees take longer than flash attention on CUDA: counted, not measured.
ON_CUDA = {False: 16_384, True: 65_536}
NEVER = 2**40  # tokens, which no sequence has


def _of_heads(default: float | None, least: int, most: float = 2**31 - 1) -> Any:
    """Return a field that is an integer, inf where that is the most, or a table of them."""
    # Where None is the default, it may stand in a table, too.

    def check_one(name: str, value: Any) -> Any:
        if value is None and default is None:
            return None
        value = math.inf if value == "inf" else value
        return value if value == math.inf == most else check_integer(name, value, least=least)

    def check(name: str, value: Any) -> Any:
        return check_table(name, value, check_one)

    return checked(default, check)


@dataclass(frozen=True)
class ClusterGraph(GraphSettings):
    r"""How heads read long inputs: along a tree of clusters of keys.

    Near keys form clusters, near clusters form groups, and so on, and each token descends this tree
    for itself: it reads the best clusters exactly, and all others by the means of the nodes that it
    did not open. All tokens read the first four keys exactly; in causal order, as **decoders** have
    it, the last ones before their own, too, and in an **encoder** those few at the end of a
    sequence that make no cluster.

    Fields that may be a table ``[layer][head]``, as :func:`jat_graph.calibrate` returns it, are
    ``keys``, ``groups``, ``dense_below`` and ``margin``.

    Args:
        keys: How many keys a token reads exactly at most beside those that all read, by whole
            clusters; a multiple of ``size``, or it is rounded up to one. (default: None, which
            means 128; 512 in causal order)
        dense_below: Sequences of fewer tokens are read densely, by SDPA; ``math.inf`` for all of
            them. In causal order the first token that meets a cluster. (default: None, which means
            4096, as measured; on CUDA 16,384, in causal order 65,536, as counted)
        propagate: Read what is not read exactly by means; or else not at all. (default: True)
        groups: How many nodes a token opens at most of each level above clusters. (default: None,
            which means 16; 32 in causal order)
        size: Keys of a cluster. (default: 8)
        segment: In causal order, keys that are clustered together, as soon as there are so many:
            ``size`` times a power of two. (default: 512)
        window: In causal order, last keys in no cluster yet, which are read exactly. (default: 64)
        margin: How far below the best score that a token meets the likely best key of a node may
            be, if the node is opened or read; ``math.inf`` for no bound. (default: 8.0)

    Raises:
        ValueError: If a field is out of its range.

    Reference:
        This library's own: clusters of keys whose centroids stand for what is not read, as in
        Multipole Attention (Hooper et al., NeurIPS 2025), in a tree, in encoders, prefill and
        training as in generation.
    """

    kind: ClassVar[str] = "clusters"

    keys: int | Table | None = _of_heads(None, least=0)
    dense_below: float | Table | None = _of_heads(None, least=0, most=math.inf)
    propagate: bool = checked(True, check_flag)
    groups: int | Table | None = _of_heads(None, least=1)
    size: int = integer(8, least=1)
    segment: int = integer(512, least=1)
    window: int = integer(64, least=1)
    margin: float | Table = checked(8.0, check_threshold)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_segment(self.size, self.segment)

    def of_head(self, head: int, num_heads: int) -> ClusterGraph:
        """Return the settings of one head of a layer, without tables."""
        own: Any = {name: row[head] for name, row in self.rows(num_heads).items()}
        return dataclasses.replace(self, **own)

    def rule(self, causal: bool, device: str = "cpu") -> Rule:
        """Return how tokens of a head descend the tree of their keys; no field may be a table."""
        measured = MEASURED[causal]
        if device == "cuda":
            measured = measured._replace(dense_below=ON_CUDA[causal])
        given = {"rest": self.propagate}
        given |= {name: own for name, own in vars(self).items() if name in measured._fields}
        rule = measured._replace(**{name: own for name, own in given.items() if own is not None})
        # An encoder's rule counts from the last token.
        first = int(min(rule.dense_below, NEVER)) - (not causal)
        window = rule.window if causal else measured.window
        return rule._replace(dense_below=max(0, first), window=window)

    def rules(
        self, num_heads: int, causal: bool, device: str = "cpu"
    ) -> dict[Rule, tuple[int, ...]]:
        """Return how one layer's heads descend their trees, and which heads share that.

        Args:
            num_heads: Heads that read by clusters; a table has one row, with an entry for each.
            causal: Whether tokens read none that comes after them.
            device: The type of their device, by which ``dense_below`` is chosen where it is None.
                (default: ``"cpu"``)

        Returns:
            The heads of each rule, in rising order.

        Raises:
            ValueError: If a table has more rows, or does not fit the heads.
        """
        groups: dict[Rule, tuple[int, ...]] = {}
        for head in range(num_heads):
            rule = self.of_head(head, num_heads).rule(causal, device)
            groups[rule] = (*groups.get(rule, ()), head)
        return groups
