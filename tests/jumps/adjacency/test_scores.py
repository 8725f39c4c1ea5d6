import pytest
import torch

from jat_graph.jumps.adjacency.scores import MapScores, QueryKeyScores, attention_scores
from tests.oracles import reference_scores
from tests.support import random_tensors


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_scores_are_the_oracles_in_full_precision(dtype, device):
    query, key = (t.to(device, dtype) for t in random_tensors(0, *[(2, 3, 7, 5)] * 2))
    scores = attention_scores(query, key, 5**-0.5)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert scores.dtype == wide
    truth = reference_scores(query.cpu().double(), key.cpu().double())
    torch.testing.assert_close(scores.cpu().double(), truth, rtol=1e-5, atol=1e-5)


def test_autocast_is_off(device):
    query, key = (t.float().to(device) for t in random_tensors(0, *[(1, 2, 16, 8)] * 2))
    plain = attention_scores(query, key, 1.0)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        cast = attention_scores(query, key, 1.0)
    assert torch.equal(cast, plain)


@pytest.mark.parametrize("form", ["features", "map"])
def test_rows_and_columns_are_parts_of_the_whole(form):
    query, key = random_tensors(0, *[(2, 3, 7, 5)] * 2)
    whole = reference_scores(query, key, 0.3)
    source = QueryKeyScores(query, key, 0.3) if form == "features" else MapScores(whole)
    assert source.shape == (2, 3, 7)
    assert (source.dtype, source.device) == (torch.float64, whole.device)
    torch.testing.assert_close(source.columns(None), whole)
    index = torch.randint(7, (2, 3, 4))
    want = whole.gather(3, index.unsqueeze(2).expand(-1, -1, 7, -1))
    torch.testing.assert_close(source.columns(index), want)
