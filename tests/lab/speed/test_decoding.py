"""Decoding: a cache gives the token that all tokens give, then both are timed."""

import pytest
import torch

from jat_graph.lab.speed import decoding
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.decoding import (
    AGAINST_BASE,
    ALL,
    BASE,
    DECODING,
    SELECTIONS,
    STONES,
    STONES_ALL,
    STRIDED,
    Decoder,
)
from jat_graph.lab.speed.series import Series, Settings

pytestmark = pytest.mark.usefixtures("quick")

SERIES = DECODING.series(Settings("cpu", 1))


@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.what)
def test_a_token_is_timed_with_and_without_a_cache(series: Series, settings: Settings) -> None:
    outcome = series.measure(80, settings)
    assert outcome.ours is not None
    assert outcome.theirs is not None


@pytest.mark.parametrize("what", [STRIDED, ALL, STONES, STONES_ALL])
def test_the_cache_gives_what_all_tokens_give(what: str, settings: Settings) -> None:
    decoder = Decoder(160, settings, SELECTIONS[what])
    wanted = decoder.all_tokens()
    for _ in range(30):  # long enough to be cropped
        got = decoder.next_token()
        if decoder.cache.get_seq_length() == 161:
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4)
    assert decoder.cache.get_seq_length() <= 160 + 160 // decoding.DRIFT + 1


def test_another_token_is_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Decoder.next_token
    monkeypatch.setattr(Decoder, "next_token", lambda self: -right(self))
    with pytest.raises(CheckError, match="nothing was timed"):
        SERIES[0].measure(32, settings)


def test_lengths_are_those_of_the_claim() -> None:
    lengths = {series.what: series.lengths for series in SERIES}
    assert lengths[BASE] == lengths[STRIDED] == (512, 1024, 2048, 4096, 8192)
    assert lengths[STONES] == lengths[BASE]
    assert "ours" in DECODING.growing


def test_stones_are_held_against_the_base_with_its_cache() -> None:
    against = {series.what: series.against for series in SERIES}
    assert against[STONES] == against[STONES_ALL] == AGAINST_BASE != against[STRIDED]
    (bar,) = DECODING.bars
    assert bar.holds_for(STONES, AGAINST_BASE, 8192)
    assert not bar.holds_for(STONES_ALL, AGAINST_BASE, 8192)
