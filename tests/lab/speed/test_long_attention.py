"""The attention part: right for sampled tokens, then timed."""

import pytest
import torch.nn.functional as F

from jat_graph.lab.speed import long_attention
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.long_attention import attention_against_all_pairs
from jat_graph.lab.speed.series import Settings

pytestmark = pytest.mark.usefixtures("quick")


def test_it_is_checked_and_timed(settings: Settings) -> None:
    outcome = attention_against_all_pairs(700, settings)
    assert outcome.ratio is not None and outcome.ratio.median > 0


def test_attention_to_all_pairs_is_refused(settings: Settings, monkeypatch) -> None:
    def all_pairs(query, key, value, *, pattern):
        return F.scaled_dot_product_attention(query, key, value)

    monkeypatch.setattr(long_attention, "pattern_attention", all_pairs)
    with pytest.raises(CheckError, match=r"^attention alone, window, L=700: the result check"):
        attention_against_all_pairs(700, settings)
