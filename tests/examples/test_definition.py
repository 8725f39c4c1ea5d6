"""Definition 3.1 over a grid of δ and p."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from examples.definition import SHARES, SPREADS, draw, holds, main, measure
from examples.sweeps.connections import EXAMPLE


def test_a_head_fits_below_its_own_share() -> None:
    shares = pd.DataFrame({"both": [0.7, 0.7, np.nan], "otherwise": [0.2, 0.6, 0.1]})
    assert holds(shares, 0.5).tolist() == [True, False, False]
    assert holds(shares, 0.3).tolist() == [True, True, False]
    assert not holds(shares, 0.7).any()


@pytest.mark.parametrize("links", ["scores", "probabilities"])
def test_shares_of_a_model(links, tiny_model: str) -> None:
    found = measure(tiny_model, [EXAMPLE], links)
    assert list(found) == list(SHARES) and len(found) == len(SPREADS) * 2 * 4
    every = found["any"].to_numpy().reshape(len(SPREADS), -1)
    assert ((0 <= every) & (every <= 1)).all() and (np.diff(every, axis=0) <= 0).all()
    assert len(draw({links: found}).axes) == 3
    with pytest.raises(ValueError, match="texts must have one of two words"):
        measure(tiny_model, [EXAMPLE._replace(words=["book"])], links)


def test_the_picture_and_the_numbers_are_written(
    tiny_model: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture, numbers = tmp_path / "definition.png", tmp_path / "definition.json"
    words = ["--model", tiny_model, "--data_dir", str(data_dir), "--texts", "4"]
    words += ["--output", str(picture), "--json", str(numbers)]
    monkeypatch.setattr(sys, "argv", ["definition", *words])
    main()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(numbers.read_text(encoding="utf-8"))["data"]) == 2 * len(SPREADS) * 2 * 4
