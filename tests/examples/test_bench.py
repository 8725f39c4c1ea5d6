"""The benchmarks: each family at its smallest size, the committed tables, and wrong use."""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from examples import bench
from examples.benchmarks import decoders, kernels, long, measure, models, roofline
from jat_graph.clusters import Rule, choose

DOCS = Path(__file__).resolve().parents[2] / "docs"
TINY = {"vocab_size": 60, "hidden_size": 64, "num_hidden_layers": 2}
TINY |= {"num_attention_heads": 4, "intermediate_size": 32}
LOAD = decoders.load_pretrained


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Call each side once or twice, compile nothing, train tiny models, start no process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measure, "BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(
        models,
        "SHAPE",
        TINY | {"num_hidden_layers": 12, "type_vocab_size": 1, "num_attention_heads": 16},
    )
    monkeypatch.setattr(models, "TOKENS", {"cpu": 64})
    monkeypatch.setattr(long, "SHAPE", TINY)
    shared = {"num_key_value_heads": 2}
    monkeypatch.setattr(decoders, "SHAPES", {"Llama": TINY, "SmolLM2": TINY | shared})
    monkeypatch.setattr(measure, "peak", run_here)
    monkeypatch.setattr(decoders, "BEGIN", 512)
    monkeypatch.setattr(decoders, "NEW", 4)
    monkeypatch.setattr(decoders, "load_pretrained", load_short)
    monkeypatch.setattr(decoders, "OURS", partial(decoders.OURS, dense_below=512))
    with torch.compiler.set_stance("force_eager"):
        yield


@cache
def shortened() -> tuple[Any, Any]:
    """SmolLM2 without its upper layers."""
    model, tokenizer = LOAD()
    model.model.layers = model.model.layers[: decoders.LAYERS]
    model.config.num_hidden_layers = decoders.LAYERS
    return model, tokenizer


def load_short() -> tuple[Any, Any]:
    """A model of its own for each side."""
    model, tokenizer = shortened()
    return copy.deepcopy(model), tokenizer


def run_here(build, *arguments, device: str) -> int:
    """Run a step in this process, as if it took a page."""
    build(*arguments)()
    return 4096


# The others' 32 tokens would all be read exactly.
LENGTHS = {"clusters": "576", "decoders": "640", "gpu": "640", "graphs": "512"}


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", bench.CASES)
def test_every_benchmark_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    length = LENGTHS.get(name, "32")
    bench.main([name, "--repeats", "1", "--device", "cpu", "--lengths", length])
    shown = capsys.readouterr().out
    results = json.loads(Path(f"bench-{name}.json").read_text(encoding="utf-8"))
    assert len(results["rows"]) == len(bench.CASES[name]["cases"])
    for row in results["rows"]:
        outcome = row["outcome"]
        assert outcome["note"].startswith("not measured: ") or outcome["ratio"]["median"] > 0
        assert f"\n|{row['what']}|{row['against']}|" in shown


@pytest.mark.usefixtures("tiny")
def test_a_file_is_gone_on_with_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["growth", "--repeats", "1", "--device", "cpu", "--lengths", "32"]
    bench.main(command)
    (first,) = json.loads(Path("bench-growth.json").read_text(encoding="utf-8"))["rows"]
    bench.main([*command, "64", "--plot", "growth.png"])
    rows = json.loads(Path("bench-growth.json").read_text(encoding="utf-8"))["rows"]
    assert rows[0] == first and [row["length"] for row in rows] == [32, 64]
    assert Path("growth.png").read_bytes().startswith(b"\x89PNG")
    assert "Log–log slope" in capsys.readouterr().out


@pytest.mark.slow
def test_memory_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    command = ["memory", "--lengths", "512", "--repeats", "1", "--device", "cpu"]
    bench.main([*command, "--out", str(path)])
    (row,) = json.loads(path.read_text(encoding="utf-8"))["rows"]
    if row["outcome"]["note"]:
        pytest.skip(row["outcome"]["note"])
    assert 0 < row["outcome"]["facts"]["multiple"] < 20


def test_the_committed_results_print_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["tables", *sorted(map(str, DOCS.glob("benchmarks/*.json")))])
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert page.endswith(capsys.readouterr().out)


@pytest.mark.usefixtures("tiny")
def test_nothing_is_printed_or_written_where_sides_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = kernels.sum_joined
    monkeypatch.setattr(kernels, "sum_joined", lambda *arguments: right(*arguments) * 1.1)
    with pytest.raises(SystemExit) as left:
        bench.main(["growth", "--lengths", "32", "--device", "cpu"])
    assert left.value.code == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.splitlines()[-1].startswith("bench: error: ")
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "line",
    [
        "nosuch",
        "growth --lengths 8",
        "growth --lengths many",
        "growth --lengths 99999999",
        "growth --repeats 0",
        "growth --device tpu",
        "growth --plot picture.jpg",
        "growth --out nowhere/file.json",
        "growth --out other.json",
        "growth file.json",
        "tables",
        "tables bad.json",
    ],
)
def test_wrong_use_is_one_line(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{", encoding="utf-8")
    committed = (DOCS / "benchmarks" / "growth.json").read_text(encoding="utf-8")
    Path("other.json").write_text(committed, encoding="utf-8")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    with pytest.raises(SystemExit) as left:
        bench.main(line.split())
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("bench: error: ")
    assert len(printed.err.splitlines()) == 1
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_costs_fill_the_table_of_prices() -> None:
    bench.main(["costs", "--lengths", "32", "--repeats", "1", "--device", "cpu", "--out", "c.json"])
    found = json.loads(Path("c.json").read_text(encoding="utf-8"))["cpu"]["nanoseconds"]
    package = files("jat_graph.jumps.operators") / "costs.json"
    assert set(found) == set(json.loads(package.read_text(encoding="utf-8"))["cpu"]["nanoseconds"])
    assert all(price > 0 for price in found.values())


def test_a_roofline_counts_what_a_token_reads(capsys: pytest.CaptureFixture[str]) -> None:
    rule, length = Rule(groups=4, keys=32, margin=float("inf")), 3000
    key = torch.randn(1, length, 8)
    choice = choose(key[:, -1:], key, rule)
    seen, opened, read = int(choice.seen), int((choice.opened >= 0).sum()), choice.read >= 0
    near = length - rule.size * seen
    shared, own = roofline.rows_of(length - 1, rule)
    assert choice.opened.size(2) == 1 and shared == 2 * near + 4 * seen // 4
    assert own == 3 * 4 * opened + 2 * rule.size * int(read.sum())
    bench.main(["roofline", "--lengths", "8192", "262144"])
    said = capsys.readouterr().out.splitlines()
    ratios = [float(line.split("|")[4]) for line in said[2:-2]]
    assert len(ratios) == 8 and all(a > b for a, b in zip(ratios[::2], ratios[1::2], strict=True))
    (first,) = (int(x) for x in re.findall(r"A100 (\d+)", said[-1]))
    ours = [roofline.prompt(x, roofline.CHIPS["A100"], Rule()) for x in (first - 4096, first)]
    assert ours[0][1] >= ours[0][0] and ours[1][1] < ours[1][0]
