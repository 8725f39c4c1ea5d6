"""inspect, calibrate and plot, from files to files."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console
from transformers import PreTrainedModel
from typer.testing import CliRunner

from jat_graph.cli.app import app
from jat_graph.cli.head_tables import _jump_cells, _stone_cells, _token, threshold_table
from jat_graph.config import JatConfig
from jat_graph.inspection import Jump, Link, Stone, Token
from tests.cli.conftest import Run

TEXT = "the book costs more than the pencil"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT + "\n", encoding="utf-8")
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    words = TEXT.split()
    lines = [" ".join(words[n % 5 :] + words[: n % 4]) for n in range(24)]
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


def _numbered(token: dict[str, Any]) -> str:
    return token["text"] + "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(token["index"]))


def test_inspect_takes_several_texts(
    run: Run, tiny_model: str, texts: Path, tmp_path: Path
) -> None:
    lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line]
    one, some, file = tmp_path / "one.json", tmp_path / "some.json", tmp_path / "file.json"
    call = ("inspect", "--model", tiny_model, "--layers", "1", "--heads", "1", "--json")
    run(*call, one, "--sentence", lines[1])
    shown = run(*call, some, "--sentence", lines[0], "--sentence", lines[1]).output
    run(*call, file, "--text", texts)
    first, second = json.loads(some.read_text(encoding="utf-8"))
    assert second == json.loads(one.read_text(encoding="utf-8"))
    assert [report["text"] for report in json.loads(file.read_text(encoding="utf-8"))] == lines
    assert first["text"] == lines[0]
    assert lines[0] in shown
    assert lines[1] in shown


@pytest.mark.parametrize("graph", ["pairs", "stones"])
def test_80_columns_cut_nothing(graph: str, tiny_model: str) -> None:
    words = ("inspect", "--model", tiny_model, "--sentence", TEXT * 4, "--graph", graph)
    strengths = ("--strength", "-0.75,0.25,-0.55", "--heads", "all", "--special-tokens")
    narrow = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*words, *strengths])
    assert narrow.exit_code == 0
    assert "→" in narrow.output
    assert "…" not in narrow.output
    for word in ("layer", "head", "density" if graph == "pairs" else "linked", "gain", "-0.75"):
        assert word in narrow.output


def test_thresholds_of_many_heads_are_whole_in_80_columns(capsys: Any) -> None:
    table = tuple(tuple(12345.0 + 16 * layer + head for head in range(16)) for layer in range(3))
    config = JatConfig(PairGraph(threshold=table), heads="all", layers=(0, 2, 5))
    Console(width=80).print(threshold_table(config))
    rows = [line.strip("│ \n").split("│") for line in capsys.readouterr().out.splitlines()]
    cells = [tuple(cell.strip() for cell in row) for row in rows]
    for row, layer in enumerate((0, 2, 5)):
        for head in range(16):
            assert (str(layer), str(head), f"{table[row][head]:.3g}") in cells


def test_right_to_left_tokens_do_not_turn_the_arrow() -> None:
    jump = Jump(Token(3, "ספר"), Token(12, "book"), 0.5, 0.1, 0.2, ())
    assert _jump_cells(jump)[0] == "\u2068ספר\u2069₃ → book₁₂"


def test_inspect_shows_a_table_and_writes_json(
    run: Run, tiny_model: str, text: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    shown = run(
        "inspect", "--model", tiny_model, "--text", text, "--json", report, "--heads", "1,3",
        "--layers", "1", "--threshold", "12", "--top", "2",
    ).output  # fmt: skip
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["text"] == TEXT
    assert [(head["layer"], head["head"]) for head in content["heads"]] == [(1, 1), (1, 3)]
    for head in content["heads"]:
        assert 0.1 < head["density"] < 0.9
        assert len(head["jumps"]) == 2
        assert f"{head['density']:.1%}" in shown
        for jump in head["jumps"]:
            assert f"{_numbered(jump['query'])} → {_numbered(jump['key'])}" in shown
            assert f"{jump['gain']:+.1%}" in shown
    assert "[CLS]" not in shown
    everything = run(
        "inspect", "--model", tiny_model, "--text", text, "--special-tokens", "--top", "50"
    ).output
    assert "[CLS]" in everything


@pytest.fixture
def stones(tmp_path: Path) -> Path:
    path = tmp_path / "stones.json"
    JatConfig.stones(heads=(1, 3), layers=(1,), strength=(0.5, 0.0, 0.25)).save(path)
    return path


def test_inspect_shows_stones_in_three_tables(
    run: Run, tiny_model: str, text: Path, stones: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    shown = run(
        "inspect", "--model", tiny_model, "--text", text, "--config", stones, "--json", report,
        "--top", "2",
    ).output  # fmt: skip
    content = json.loads(report.read_text(encoding="utf-8"))
    assert [(head["layer"], head["head"]) for head in content["heads"]] == [(1, 1), (1, 3)]
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    for head in content["heads"]:
        numbers = f"{head['linked']:.0%} │ {head['num_stones']} │ {head['median_size']:g}"
        assert f"│ 1 │ {head['head']} │ 1 │ {numbers} │ +0.5 +0 +0.25 │" in rows
        for jump in head["jumps"]:
            names = f"{_numbered(jump['query'])} → {_numbered(jump['key'])}"
            assert any(
                f"│ {names} │ {jump['weight']:.0%} │ {jump['gain']:+.1%} │" in r for r in rows
            )
        assert len(head["stones"]) == 2
        for stone in head["stones"]:
            name = f"{_numbered(stone['token'])} {'+' if stone['side'] > 0 else '−'}"
            links = [f"{_numbered(link['token'])} {link['weight']:.2f}" for link in stone["links"]]
            hidden = [f"{stone['hidden_links']} not shown"] * bool(stone["hidden_links"])
            row = f"│ {name} │ {stone['share']:.1%} │ {', '.join(links + hidden)} │"
            assert any(row in line for line in rows)


def test_inspect_shows_strengths_of_pairs(
    run: Run, tiny_model: str, text: Path, tmp_path: Path
) -> None:
    config = tmp_path / "pairs.json"
    JatConfig(heads=1, layers=(1,), strength=0.5).save(config)
    shown = run("inspect", "--model", tiny_model, "--text", text, "--config", config).output
    assert "θ" in shown
    assert "+0.5 +0.5 +0.5" in shown


def test_plot_draws_stones(
    run: Run, tiny_model: str, stones: Path, text: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.png", tmp_path / "other.png"
    place = ("--model", tiny_model, "--layer", "1", "--head", "3", "--text", text)
    run("plot", *place, "--config", stones, "--output", one)
    run("plot", *place, "--output", other)
    assert one.read_bytes().startswith(b"\x89PNG")
    assert one.read_bytes() != other.read_bytes()


def test_stones_need_no_calibration(
    run: Run, tiny_model: str, stones: Path, text: Path, tmp_path: Path
) -> None:
    output = tmp_path / "config.json"
    with pytest.raises(ValueError, match="graph must be 'pairs' to calibrate, got 'stones'"):
        run(
            "calibrate", "--model", tiny_model, "--text", text, "--config", stones,
            "--output", output,
        )  # fmt: skip
    assert not output.exists()


def test_calibrate_writes_a_config_that_inspect_takes(
    run: Run, tiny_model: str, text: Path, texts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "config.json"
    result = run(
        "calibrate", "--model", tiny_model, "--text", texts, "--output", output,
        "--density", "0.2", "--batch-size", "4", "--heads", "0,2", "--layers", "1", "--inclusive",
    )  # fmt: skip
    config = JatConfig.load(output)
    assert (config.heads, config.layers, config.graph.inclusive) == ((0, 2), (1,), True)
    assert isinstance(config.graph.threshold, tuple)
    assert "density on held-out batches" in result.stderr
    assert "(wanted 0.2000)" in " ".join(result.stderr.split())
    assert f"{config.graph.threshold[0][1]:.3g}" in result.output
    report = tmp_path / "report.json"
    run("inspect", "--model", tiny_model, "--text", text, "--config", output, "--json", report)
    heads = json.loads(report.read_text(encoding="utf-8"))["heads"]
    assert [head["threshold"] for head in heads] == list(config.graph.threshold[0])


def test_calibrate_on_a_task(run: Run, tiny_model: str, cola_dir: str, tmp_path: Path) -> None:
    output = tmp_path / "config.json"
    run(
        "calibrate", "--model", tiny_model, "--task", "cola", "--data-dir", cola_dir,
        "--output", output, "--density", "0.2", "--batch-size", "8", "--batches", "3",
        "--max-length", "16",
    )  # fmt: skip
    table = JatConfig.load(output).threshold
    assert isinstance(table, tuple)
    assert [len(row) for row in table] == [4, 4]


@pytest.fixture
def unrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no model be run."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("run before it was refused")

    monkeypatch.setattr("jat_graph.inspection.reading.capture_batch", refuse)


@pytest.mark.parametrize("command", [["inspect"], ["plot", "--output", "x.png"]])
def test_tokens_beyond_the_text_are_refused_before_the_model_runs(
    run: Run, tiny_model: str, unrun: None, command: list[str]
) -> None:
    call = [*command, "--model", tiny_model, "--sentence", TEXT]
    if command == ["inspect"]:  # the second of two texts is too short
        call[3:3] = ["--sentence", TEXT * 2]
    with pytest.raises(ValueError, match="tokens must lie in a text of 9, 0:9, got 4:12"):
        run(*call, "--tokens", "4:12")
    assert not Path("x.png").exists()


@pytest.mark.parametrize("settings", [["--threshold", "8"], ["--preset", "stones"]])
def test_a_part_is_shown_as_it_is_in_the_whole(
    run: Run, tiny_model: str, tmp_path: Path, settings: list[str]
) -> None:
    whole, part = tmp_path / "whole.json", tmp_path / "part.json"
    call = ("inspect", "--model", tiny_model, "--sentence", TEXT, "--top", "500", *settings)
    run(*call, "--json", whole)
    shown = run(*call, "--layer", "1", "--head", "0,3", "--tokens", "2:6", "--json", part).output
    wanted = [
        head
        for head in json.loads(whole.read_text(encoding="utf-8"))["heads"]
        if head["layer"] == 1 and head["head"] in (0, 3)
    ]
    heads = json.loads(part.read_text(encoding="utf-8"))["heads"]
    assert [head["head"] for head in heads] == [0, 3]
    for head, full in zip(heads, wanted, strict=True):
        assert head["density"] == full["density"]
        ends = [{jump["query"]["index"], jump["key"]["index"]} for jump in full["jumps"]]
        inside = [j for j, own in zip(full["jumps"], ends, strict=True) if own <= {2, 3, 4, 5}]
        assert head["jumps"] == inside
        assert len(full["jumps"]) > len(inside) > 0
    assert "│ 0     │" not in shown


def test_many_tokens_on_a_stone_are_cut_down_to_the_heaviest(capsys: Any) -> None:
    links = tuple(Link(Token(n, f"token{n}"), n % 7 + n / 100) for n in range(90))
    stone = Stone(Token(3, "book"), 1, 0.25, links, hidden_links=2)
    name, share, who = _stone_cells(stone)
    assert (name, share) == ("book₃ +", "25.0%")
    named = who.split(", ")
    heaviest = sorted(links, key=lambda link: -link.weight)[:12]
    wanted = [f"{_token(x.token)} {x.weight:.2f}" for x in links if x in heaviest]
    assert named == [*wanted, "78 more", "2 not shown"]


def test_plot_draws_a_grid_of_all_heads(
    run: Run, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = []

    def keep(figure: Any, _: Path) -> None:
        drawn.append([axis.get_title().split(":")[0] for axis in figure.axes if axis.images])

    monkeypatch.setattr("jat_graph.viz.save_figure", keep)
    call = ("plot", "--model", tiny_model, "--sentence", TEXT, "-o", tmp_path / "x.png")
    run(*call)
    run(*call, "--head", "3,1", "--special-tokens")
    run(*call, "--layer", "1", "--preset", "stones", "--heads", "0,2")
    every = [f"layer {layer}, head {head}" for layer in (0, 1) for head in range(4)]
    assert drawn == [
        every,
        [every[place] for place in (1, 3, 5, 7)],
        ["layer 1, head 0", "layer 1, head 2"],
    ]


def test_plot_draws_some_tokens_of_one_head(
    run: Run, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, ...]] = []
    monkeypatch.setattr(
        "jat_graph.viz.save_figure",
        lambda figure, _: drawn.append(figure.axes[0].images[0].get_array().shape),
    )
    call = ("plot", "--model", tiny_model, "--sentence", TEXT, "-o", tmp_path / "x.png")
    run(*call, "--layer", "1", "--head", "2")
    run(*call, "--layer", "1", "--head", "2", "--tokens", "2:6")
    run(*call, "--layer", "1", "--head", "2", "--length", "3")
    assert drawn == [(7, 7), (4, 4), (3, 3)]


def test_plot_draws_from_a_file_or_a_sentence(
    run: Run, tiny_model: str, text: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.png", tmp_path / "other.png"
    place = ("--model", tiny_model, "--layer", "1", "--head", "2")
    run("plot", *place, "--text", text, "--output", one)
    run("plot", *place, "--sentence", TEXT, "--output", other)
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes().startswith(b"\x89PNG")


def test_plot_writes_what_the_ending_says(run: Run, tmp_path: Path) -> None:
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")):
        picture = tmp_path / f"picture{ending}"
        run("plot", "--pattern", "window:3", "--length", "8", "-o", picture)
        assert picture.read_bytes().startswith(start)


def test_plot_draws_patterns(run: Run, tmp_path: Path) -> None:
    one, both = tmp_path / "one.png", tmp_path / "both.png"
    run("plot", "--pattern", "window:3+global:1", "--length", "16", "-o", one)
    run("plot", "--pattern", "window:3+global:1,strided:4", "--length", "16", "--output", both)
    assert one.read_bytes().startswith(b"\x89PNG")
    assert len(both.read_bytes()) > len(one.read_bytes())
    run("plot", "--pattern", "block:4,window:3,area:2", "--length", "16", "--output", both)
    assert len(both.read_bytes()) > len(one.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pattern", "window:0"], "width of a window must be"),
        (
            ["--pattern", "window:3,area:two"],
            r"pattern must be area:WIDTH\[:causal\], got 'area:two'",
        ),
        (["--pattern", "window:3", "--length", "0"], "--length must be at least 1, got 0"),
        ([], "plot needs --model, or --pattern"),
        (["--pattern", "window:3", "--model", "x"], "plot needs --text or --sentence"),
    ],
)
def test_patterns_that_cannot_be_drawn_are_named(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    picture = tmp_path / "x.png"
    with pytest.raises(ValueError, match=message):
        run("plot", *arguments, "--output", picture)
    assert not picture.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate"], "calibrate needs --text or --sentence or --task"),
        (["calibrate", "--sentence", "book", "--task", "cola"], "takes --task or texts, not both"),
        (["inspect"], "inspect needs --text or --sentence"),
        (["inspect", "--text", "TEXT", "--sentence", "book"], "takes either --text or --sentence"),
        (
            [
                "plot",
                "--layer",
                "0",
                "--head",
                "0",
                "--output",
                "x.png",
                "--sentence",
                "book",
                "--sentence",
                "pencil",
            ],
            "plot draws one text, got 2",
        ),
        (
            ["plot", "--layer", "0", "--head", "0", "--output", "x.png"],
            "plot needs --text or --sentence",
        ),
        (
            ["plot", "--layer", "7", "--head", "0", "--output", "x.png", "--sentence", "book"],
            "--layer must be one of the model's 2 layers, 0 to 1, got 7",
        ),
        (
            ["plot", "--layer", "0", "--head", "0", "--output", "x.jpg", "--sentence", "book"],
            "ending in .png, .svg or .pdf",
        ),
        (["inspect", "--text", "TEXT", "--heads", "13"], "heads=13 .* has 4 heads"),
        (["inspect", "--text", "TEXT", "--layers", "2"], "needs layer 2"),
        (["inspect", "--text", "TEXT", "--key-selection", "best"], "key_selection must be one of"),
        (["calibrate", "--text", "TEXT", "--density", "1.5"], "density must be in"),
        (["calibrate", "--text", "TEXT", "--vote-rate", "0.1"], "vote_rate must be None"),
    ],
)
def test_wrong_use_is_named(
    run: Run, tiny_model: str, text: Path, arguments: list[str], message: str
) -> None:
    words = [str(text) if word == "TEXT" else word for word in arguments]
    with pytest.raises(ValueError, match=message):
        run(*words, "--model", tiny_model)
    assert not Path("x.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "--heads", "13"], "needs head 12, but the model has 4 heads"),
        (["inspect", "--json", "none/x.json"], "must be a file in a folder that is there"),
        (["calibrate", "--density", "3"], r"density must be in \(0, 1\), got 3.0"),
        (["calibrate", "--layers", "9"], "needs layer 9, but the model has 2 layers"),
        (["calibrate", "--output", "none/x.json"], "must be a file in a folder that is there"),
        (["plot", "-o", "x.jpg", "--layer", "0", "--head", "0"], "or .pdf, got 'x.jpg'"),
        (
            ["plot", "-o", "x.png", "--layer", "0", "--head", "7"],
            "the model's 4 heads, 0 to 3, got 7",
        ),
        (["plot", "-o", "x.png", "--length", "500"], "--length must be below 201, got 500"),
        (
            ["inspect", "--layer", "5"],
            "--layer must be one of the model's 2 layers, 0 to 1, got 5",
        ),
        (["inspect", "--head", "0,13"], "one of the model's 4 heads, 0 to 3, got 13"),
        (["inspect", "--head", "3", "--heads", "2"], "head 3 must be a jump head"),
        (
            ["inspect", "--layer", "1", "--layers", "0"],
            "layer 1 must have jump heads, got only lay",
        ),
        (["inspect", "--head", "two"], "--head must be whole numbers"),
        (["inspect", "--tokens", "90:40"], "--tokens must be FIRST:END, as 40:90 .*, got '90:40'"),
        (["plot", "-o", "x.png", "--tokens", "4"], "--tokens must be FIRST:END"),
    ],
)
def test_refused_before_a_model_is_loaded(
    run: Run,
    tiny_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    def load(*_: object, **__: object) -> NoReturn:
        raise AssertionError("loaded before it was refused")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", load)
    (tmp_path / "t").write_text("the book costs more than the pencil")
    with pytest.raises((ValueError, OSError), match=message):
        run(words[0], "--model", tiny_model, "--text", "t", *words[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
