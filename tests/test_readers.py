"""What readers and the viewer make of any file or text: what they give, or one line and no file."""

import json
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples.bench import read_results as read_benchmark
from examples.sweeps.definition import read_sweep
from examples.sweeps.store import read_results
from examples.tasks import get_task
from jat_graph import JatConfig
from jat_graph.probes import Sentence, read_treebank, view
from jat_graph.viewer import head_view
from tests.data.support import tiny_tokenizer
from tests.hf.models import tiny_model

TREE = "# c\n1\tDogs\tdog\tX\t_\t_\t2\tx\t_\t_\n2\tbark\tbark\tX\t_\ta=b\t0\troot\t0:a\t_\n\n"
ANSWER = '{"id":1,"question":"q","is_impossible":false,"answers":[{"text":"b","answer_start":1}]}'
SQUAD = f'{{"data": [{{"paragraphs": [{{"context": "abc", "qas": [{ANSWER}]}}]}}]}}'
SPANS = '{"span1_text":"Ann","span1_index":0,"span2_text":"it","span2_index":2}'
READERS: dict[str, tuple[str, Any]] = {
    "a.conllu": (TREE, read_treebank),
    "settings.json": (json.dumps(JatConfig.stones().to_dict()), JatConfig.load),
    "a.jsonl": ('{"version": 2, "sweep": {"name": "a"}}\n{"task": "x"}', read_results),
    "a.toml": ('name = "a"\n[[variants]]\nname = "b"\n', lambda path: read_sweep(str(path))),
    "a.json": ('{"version": 1, "benchmark": "growth", "rows": [1]}', read_benchmark),
    "dev.tsv": ("index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n", "rte"),
    "val.jsonl": (f'{{"text": "Ann saw it", "target": {SPANS}, "label": true}}\n', "wsc"),
    "dev-v2.0.json": (SQUAD, "squad2"),
    "COVID-QA.json": (SQUAD, "covidqafar"),
    "emerging.dev.conll": ("dog\tO\nAnn\tB-person\n", "wnut17"),
    "en_ewt-ud-dev.conllu": (TREE, "ewtrelations"),
    "valid.txt": (" = T = \n\nabc\n", "wikitext2"),
    "jsb-chorales-16th.json": ('{"valid": [[[60, 50]]]}', "chorales"),
    "articles-training-byarticle-20181122.xml": ('<a><article id="1"/></a>', "hyperpartisan"),
    "aclImdb_v1.tar.gz": ("x", "imdb"),
}
LETTERS = st.text(st.characters() | st.sampled_from('\n\t\r\\"{[<\ufeff\u2028\x00\ud83d'))
UNITS = "[", '{"a":', "<s>", '"', "\\ud83d", "\n", "a", "é", "= ", "0:a|", "<a b='"
LONG = st.sampled_from([(unit * 20_000)[:20_000] for unit in UNITS])
VALUES = st.sampled_from(["null", '"false"', "-1", "1e999", "[]", "9" * 5000])


def one_line(work: Callable[[], object], folder: Path) -> None:
    """What is refused is one line, and leaves a folder as it was."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    try:
        work()
    except (ValueError, OSError) as error:
        assert str(error).strip() and "\n" not in str(error)
        assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize("file", READERS)
@given(data=st.data())
def test_any_file_is_read_or_refused(file: str, data: st.DataObject) -> None:
    valid, read = READERS[file]
    start, end = data.draw(st.sampled_from([x.span() for x in re.finditer(r"\w+|\W", valid)]))
    spliced = (LETTERS | VALUES | LONG).map(lambda own: valid[:start] + own + valid[end:])
    texts = (spliced | LETTERS | LONG).map(lambda own: own.encode("utf-8", "surrogatepass"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file)
        path.write_bytes(data.draw(texts | st.binary()))
        task = None if callable(read) else get_task(read)
        one_line(lambda: task.load(folder, ["validation"]) if task else read(path), path.parent)


@given(tokens=st.lists(LETTERS, min_size=1, max_size=4), title=LETTERS)
def test_any_token_is_on_the_page(tokens: list[str], title: str) -> None:
    page = head_view([torch.ones(1, len(tokens), len(tokens))], tokens, title=title)
    data = re.search(r'id="data">(.*?)</script>', page.html, re.DOTALL)
    assert data and json.loads(data[1])["texts"][0]["tokens"] == tokens
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        one_line(partial(page.save, path), path.parent)
        assert not path.exists() or path.read_bytes().decode() == page.html


@given(text=st.just("a\ud83d") | LETTERS | LONG, is_tree=st.booleans())
def test_any_text_is_shown_or_refused(text: str, is_tree: bool, tmp_path_factory: Any) -> None:
    words = tuple(text.split()[:9]) or ("",)
    heads, names = (*range(1, len(words)), -1), ("X",) * len(words)
    shown = Sentence(words, names, heads, names) if is_tree else text
    model = tiny_model("bert").eval()
    folder = tmp_path_factory.mktemp("empty")
    one_line(partial(view, model, tiny_tokenizer(), shown), folder)
