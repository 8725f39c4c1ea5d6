"""What there is to say of one jump head on a text, as plain data."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import islice

from torch import Tensor

from jat_graph.inspection.calibration import graph_densities
from jat_graph.inspection.edges import strongest_edges
from jat_graph.inspection.graphs import Footing, StoneLinks
from jat_graph.inspection.reading import Reading
from jat_graph.inspection.reports import (
    HeadReport,
    Jump,
    Link,
    SteppingStone,
    Stone,
    StoneReport,
)
from jat_graph.inspection.tracing import HeadTrace


def report_head(reading: Reading, trace: HeadTrace, top: int, stones: int | None) -> HeadReport:
    """Report one head: the first jumps, and the first of its stones or all of them."""
    (measured,) = graph_densities(trace.layer, trace.graph)
    theta = trace.strengths
    report = HeadReport(
        trace.layer.layer,
        measured.head,
        float(trace.graph.ballot.rule.threshold[0, 0]),
        measured.density,
        measured.mean_weight,
        tuple(_jumps(reading, trace, top)),
        None if theta is None else tuple(tuple(hop) for hop in theta.mT.tolist()),
    )
    if isinstance(trace.graph, StoneLinks):
        return _with_stones(report, reading, trace.graph, stones)
    return report


def cut(reading: Reading, matrix: Tensor) -> Tensor:  # [L, L] -> [n, n]
    """Return what a matrix has for the tokens that are looked at."""
    keep = list(reading.shown)
    return matrix if len(keep) == len(matrix) else matrix[keep][:, keep]


def _with_stones(
    report: HeadReport, reading: Reading, graph: StoneLinks, most: int | None
) -> StoneReport:
    """Add to a report what there is to say of a head's stones."""
    footings = graph.footings()
    stones = (
        stone
        for footing in footings
        if footing.key in reading.named and (stone := _stone(reading, graph, footing)).links
    )
    return StoneReport(
        **vars(report),
        linked=graph.linked,
        num_stones=len(footings),
        median_size=float(statistics.median(f.size for f in footings)) if footings else 0.0,
        stones=tuple(islice(stones, most)),
    )


def _stone(reading: Reading, graph: StoneLinks, footing: Footing) -> Stone:
    shown = set(reading.shown)
    links = [Link(reading.tokens[i], b) for i, b in graph.standing(footing) if i in shown]
    return Stone(
        reading.tokens[footing.key],
        footing.side,
        footing.share,
        tuple(links),
        hidden_links=footing.size - len(links),
    )


def _jumps(reading: Reading, trace: HeadTrace, top: int) -> Iterator[Jump]:
    """Yield the edges with the largest gains."""
    if top == 0:
        return  # and make no matrix for it
    gains, weights = (cut(reading, m) for m in (trace.after - trace.before, trace.weights))
    edges = strongest_edges(gains, weights, top).tolist()
    carried = trace.carried([reading.shown[k] for _, k in edges])
    for place, (i, k) in enumerate(edges):
        query, key = reading.shown[i], reading.shown[k]
        votes = trace.graph.votes(query, key)
        stones = tuple(
            SteppingStone(reading.tokens[vote.key], *vote[1:])
            for vote in votes
            if vote.key in reading.named
        )
        yield Jump(
            query=reading.tokens[query],
            key=reading.tokens[key],
            weight=float(weights[i, k]),
            before=float(trace.before[query, key]),
            after=float(trace.after[query, key]),
            stones=stones,
            hidden_stones=len(votes) - len(stones),
            carried=None if carried is None else float(carried[query, place]),
        )
