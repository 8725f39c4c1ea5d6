"""Rows of graphs: peaks as multiples of the largest result, and refusals of impossible ones."""

import pytest
import torch

from jat_graph.lab.speed import graphs
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.graphs import GRAPHS, TEXT
from jat_graph.lab.speed.series import Settings
from tests.lab.speed.test_probe import needs_peaks


@needs_peaks
def test_a_graph_of_few_neighbours_is_measured(settings: Settings) -> None:
    outcome = GRAPHS.series(settings)[0].measure(512, settings)
    assert outcome.ratio is not None
    assert 0.5 < outcome.ratio.median < 200


@needs_peaks
def test_a_data_set_takes_at_least_its_states(settings: Settings) -> None:
    outcome = GRAPHS.series(settings)[1].measure(2 * TEXT, settings)
    assert outcome.ours is not None
    assert outcome.ours.median > 2 * TEXT * 384 * 4
    assert outcome.facts["texts"] == 2


@pytest.mark.parametrize("edges", [0, 49])
def test_a_graph_that_cannot_be_is_refused(edges: int) -> None:
    with pytest.raises(CheckError, match=f"at most 48 edges and some, got {edges}"):
        graphs._require_edges("graph", edges, 48)


def test_every_text_has_as_many_tokens_as_it_says() -> None:
    words = ["w0", "w1"]
    ids = graphs._tokenizer(words)("w1 w0 w1", return_tensors="pt")["input_ids"]
    assert torch.equal(ids, torch.tensor([[2, 1, 2]]))
