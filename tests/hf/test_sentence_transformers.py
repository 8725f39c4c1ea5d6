"""sentence-transformers on top of models with jump heads: encode, train, save, load."""

import re
from pathlib import Path

import pytest

from tests.hf.models import strengths

pytest.importorskip("sentence_transformers", reason="sentence-transformers is missing")
pytest.importorskip("datasets", reason="its trainer takes data sets of datasets")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto_sentence_transformers.md"


# The trainer of sentence-transformers uses what transformers renamed, and pins memory for no GPU.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:.*(pin_mem|runs without):UserWarning")
def test_the_page_runs_and_strengths_learn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    found = {"__name__": "__main__"}
    exec(compile("\n".join(blocks), str(PAGE), "exec"), found)
    assert any(bool(theta.any()) for theta in strengths(found["model"]))
