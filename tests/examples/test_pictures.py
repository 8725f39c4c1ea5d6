"""Pictures of heads: the graph of one, its attention, Definition 3.1."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from examples import attention_changes, definition, sentence_graph
from examples.definition import SHARES, SPREADS, holds, measure
from examples.sentence_graph import SENTENCE, edges_of
from examples.sweeps.connections import EXAMPLE
from jat_graph import JatConfig, attach
from jat_graph.inspection import HeadReport, HeadView, Token
from tests.examples.conftest import Call

Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, minilm_path: str, call: Call) -> Run:
    """Return what runs a script on MiniLM, and says where its picture should be."""

    def command(script: Any, *words: str) -> Path:
        picture = tmp_path / "picture.png"
        call(script, "--model", minilm_path, "--output", picture, *words)
        return picture

    return command


HEAD = ("--sentence", "Dogs bark.", "--layer", "0", "--head", "0")


def test_each_joined_pair_is_one_edge() -> None:
    weights = torch.tensor([[0.0, 0.5, 0.0], [0.5, 0.0, 0.25], [0.0, 0.25, 0.0]])
    tokens = tuple(Token(place, name) for place, name in enumerate("abc"))
    view = HeadView(HeadReport(0, 0, 1.0, 0.5, 0.4, ()), tokens, weights, weights, weights, weights)
    assert edges_of(view) == {(0, 1): 0.5, (1, 2): 0.25}


def test_the_head_is_calibrated_and_joins_the_two_words(minilm_path: str) -> None:
    view = sentence_graph.look(minilm_path, SENTENCE, layer=2, head=9, density=0.2)
    assert view.report.density == pytest.approx(0.2, abs=0.03)
    names = [token.text for token in view.tokens]
    pair = tuple(sorted((names.index("computer"), names.index("pencil"))))
    assert pair in edges_of(view)


def test_before_is_the_attention_of_the_model_as_it_comes(minilm_path: str) -> None:
    words, *both = attention_changes.look(minilm_path, "Dogs bark.", layer=0, head=3, density=0.2)
    model = AutoModel.from_pretrained(minilm_path, attn_implementation="eager")
    batch = AutoTokenizer.from_pretrained(minilm_path)("Dogs bark.", return_tensors="pt")
    with torch.no_grad():
        rows = model(**batch, output_attentions=True).attentions[0][0, 3, 1:-1, 1:-1]
    assert words == ["dogs", "bark", "."]
    torch.testing.assert_close(both[0], rows)
    assert not torch.allclose(both[1], rows)


def test_without_a_head_it_is_the_mean_of_those_that_jump(tiny_model: str, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(tiny_model)
    attach(model, JatConfig.paper(threshold=0.5, heads=(1, 3))).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    mean, *heads = (
        attention_changes.look(str(tmp_path), "a book costs more", 1, head, 0.2)
        for head in (None, 1, 3)
    )
    for matrix, *single in zip(mean[1:], heads[0][1:], heads[1][1:], strict=True):
        torch.testing.assert_close(matrix, torch.stack(single).mean(0))


def test_a_head_fits_the_definition_below_its_own_share() -> None:
    shares = pd.DataFrame({"both": [0.7, 0.7, np.nan], "otherwise": [0.2, 0.6, 0.1]})
    assert holds(shares, 0.5).tolist() == [True, False, False]
    assert holds(shares, 0.3).tolist() == [True, True, False]
    assert not holds(shares, 0.7).any()


@pytest.mark.parametrize("links", ["scores", "probabilities"])
def test_shares_of_pairs_fall_with_p(links: Any, tiny_model: str) -> None:
    found = measure(tiny_model, [EXAMPLE], links)
    assert list(found) == list(SHARES) and len(found) == len(SPREADS) * 2 * 4
    every = found["any"].to_numpy().reshape(len(SPREADS), -1)
    assert ((0 <= every) & (every <= 1)).all() and (np.diff(every, axis=0) <= 0).all()
    with pytest.raises(ValueError, match="texts must have one of two words"):
        measure(tiny_model, [EXAMPLE._replace(words=["book"])], links)


@pytest.mark.slow
def test_pictures_and_numbers_are_written(
    run: Run, tiny_model: str, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(sentence_graph, *HEAD).read_bytes().startswith(b"\x89PNG")
    assert run(attention_changes).read_bytes().startswith(b"\x89PNG")
    assert "'kate' looks at " in capsys.readouterr().out
    numbers = run(sentence_graph, *HEAD).with_name("numbers.json")
    words = ["--data_dir", str(data_dir), "--texts", "4", "--json", str(numbers)]
    assert run(definition, *words, "--model", tiny_model).read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(numbers.read_text(encoding="utf-8"))["data"]) == 2 * len(SPREADS) * 2 * 4
