"""The picture of a layer's attention before and after its heads jump."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from examples.attention_changes import look, main
from jat_graph import JatConfig, attach


def test_before_is_the_attention_of_the_model_as_it_comes(minilm_path: str) -> None:
    words, before, after = look(minilm_path, "Dogs bark.", layer=0, head=3, density=0.2)
    model = AutoModel.from_pretrained(minilm_path, attn_implementation="eager")
    batch = AutoTokenizer.from_pretrained(minilm_path)("Dogs bark.", return_tensors="pt")
    with torch.no_grad():
        rows = model(**batch, output_attentions=True).attentions[0][0, 3, 1:-1, 1:-1]
    assert words == ["dogs", "bark", "."]
    torch.testing.assert_close(before, rows)
    assert not torch.allclose(after, rows)


def test_without_a_head_it_is_the_mean_of_those_that_jump(tiny_model: str, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(tiny_model)
    attach(model, JatConfig.paper(threshold=0.5, heads=(1, 3))).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    mean, *heads = (look(str(tmp_path), "a book costs more", 1, h, 0.2) for h in (None, 1, 3))
    for matrix, *single in zip(mean[1:], heads[0][1:], heads[1][1:], strict=True):
        torch.testing.assert_close(matrix, torch.stack(single).mean(0))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "'kate' looks at "),
        (["--model", "nowhere"], "error: "),
        (["--layer", "9"], "error: .*layer"),
        (["--output", "a.jpg"], r"error: .*\.png"),
    ],
)
def test_a_picture_or_one_line_that_says_why_not(
    words: list[str],
    message: str,
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    picture = tmp_path / "changes.png"
    given = ["--model", minilm_path, "--output", str(picture), *words]
    monkeypatch.setattr(sys, "argv", ["attention_changes", *given])
    if not words:
        main()
        assert message in capsys.readouterr().out
    else:
        with pytest.raises(SystemExit, match=f"^attention_changes: {message}") as caught:
            main()
        assert "\n" not in str(caught.value)
    assert picture.exists() == (not words)
