"""inspect, calibrate, plot and view, from texts to files."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

import jat_graph
from jat_graph import JatConfig
from jat_graph.hf import attach, attached_config
from jat_graph.looking.cli.app import app
from jat_graph.inspection import Fidelity
from tests.cli.conftest import Run

TEXT = "the book costs more than the pencil"
LONG = " ".join([TEXT] * 7)  # 51 tokens
CLUSTERED = ("--set", "dense_below=0", "--set", "keys=4", "--set", "size=2", "--set", "segment=16")
TREES = """1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tbook\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tcosts\t_\tVERB\t_\t_\t0\troot\t_\t_

1\tmore\t_\tADJ\t_\t_\t0\troot\t_\t_
2\tthan\t_\tADP\t_\t_\t1\tcase\t_\t_

"""


@dataclass
class Files:
    texts: Path
    treebank: Path
    stones: Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Twelve texts, two trees and settings of stones."""
    words = TEXT.split()
    lines = [" ".join(words[n % 5 :] + words[: n % 4]) for n in range(12)]
    own = Files(tmp_path / "texts.txt", tmp_path / "trees.conllu", tmp_path / "stones.json")
    own.texts.write_bytes("\ufeff".encode() + "\n\n".join(lines).encode())
    own.treebank.write_text(TREES, encoding="utf-8")
    JatConfig.stones(heads=(1, 3), layers=(1,), strength=(0.5, 0.0, 0.25)).save(own.stones)
    return own


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def with_position(token: dict[str, Any]) -> str:
    return token["text"] + str(token["index"]).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


# --- inspect -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pairs", "stones"])
def test_inspect_shows_tables_and_writes_json(
    kind: str, run: Run, tiny_model: str, files: Files, tmp_path: Path
) -> None:
    given = ("--set", "heads=[1,3]", "--set", "layers=[1]", "--set", "threshold=12")
    if kind == "stones":
        given = ("--config", str(files.stones))
    call = ("inspect", "--model", tiny_model, "--text", TEXT, *given, "--top", 2)
    shown = run(*call, "--json", tmp_path / "report.json").output
    content = read(tmp_path / "report.json")
    assert content["text"] == TEXT
    assert [(head["layer"], head["head"]) for head in content["heads"]] == [(1, 1), (1, 3)]
    for head in content["heads"]:
        share = head["density"] if kind == "pairs" else head["linked"]
        assert (f"{share:.1%}" if kind == "pairs" else f"{share:.0%}") in shown
        assert len(head["jumps"]) == 2
        for jump in head["jumps"]:
            assert f"{with_position(jump['query'])} → {with_position(jump['key'])}" in shown
            assert f"{100 * jump['gain']:+.1f} " in shown
    assert "[CLS]" not in shown
    assert "[CLS]" in run(*call[:-1], 50, "--special-tokens").output


def test_inspect_shows_clusters_and_writes_json(run: Run, tiny_model: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    call = ("inspect", "--model", tiny_model, "--text", LONG, "--json", file, "--layer", 1)
    given = ("--set", "keys=4", "--set", "size=2", "--set", "segment=16", "--top", 2)
    shown = run(*call, "--config", "clustered", *given, "--head", 2).output
    assert "A text this short is read densely (dense_below)" in shown
    (head,) = read(file)["heads"]
    assert (head["layer"], head["head"], head["dense"]) == (1, 2, True)
    for share in ("share", "exact", "tv"):
        assert f"{head[share]:.1%}" in shown
    readings = sorted(head["tokens"], key=lambda own: -own["keys"][0]["share"])
    assert all(len(own["keys"]) == 2 for own in readings)
    for own in readings[:12]:
        row = rf"{with_position(own['token'])} +│ {own['exact']:.0%} +│ "
        keys = (f"{with_position(key['token'])} {key['share']:.1%}" for key in own["keys"])
        assert re.search(row + ", ".join(keys), shown)
    assert f"{len(readings) - 12} more" in shown
    shown = run(*call, "--set", "graph=clusters", *given, "--set", "dense_below=0").output
    assert "densely" not in shown
    assert [head["head"] for head in read(file)["heads"]] == [0, 1, 2, 3]
    call = ("inspect", "--model", tiny_model, "--text", "the book", "--config", "clustered")
    shown = run(*call, "--head", 2).output
    assert shown.startswith("All of a text this short is read exactly.")


def test_inspect_takes_several_texts_and_shows_a_part(
    run: Run, tiny_model: str, files: Files, tmp_path: Path
) -> None:
    lines = files.texts.read_text(encoding="utf-8-sig").split("\n\n")
    call = ("inspect", "--model", tiny_model, "--json", tmp_path / "report.json")
    run(*call, "--file", files.texts)
    whole = read(tmp_path / "report.json")
    assert [report["text"] for report in whole] == lines
    run(*call, "--text", lines[0], "--layer", 1, "--head", 2, "--head", 0, "--tokens", "1:4")
    part = read(tmp_path / "report.json")
    assert [(head["layer"], head["head"]) for head in part["heads"]] == [(1, 0), (1, 2)]
    known = {(head["layer"], head["head"]): head["density"] for head in whole[0]["heads"]}
    for head in part["heads"]:
        assert head["density"] == known[head["layer"], head["head"]]
        assert all(jump["query"]["index"] in (1, 2, 3) for jump in head["jumps"])


@pytest.mark.parametrize("model", ["tiny", "saved with clusters"])
def test_clusters_can_be_changed_kept_and_left(
    model: str, run: Run, tiny_model: str, tmp_path: Path
) -> None:
    def inspected(*options: str) -> JatConfig:
        file = tmp_path / "report.json"
        run("inspect", "--model", folder, "--text", TEXT, "--json", file, *options)
        return JatConfig.from_dict(read(file)["config"])

    folder: object = tiny_model
    config = JatConfig.clustered(keys=8, layers=(1,))
    given: tuple[str, ...] = ("--config", "clustered", "--set", "keys=8", "--set", "layers=[1]")
    if model != "tiny":
        own, tokenizer = (kind.from_pretrained(tiny_model) for kind in (AutoModel, AutoTokenizer))
        attach(own, config).save_pretrained(tmp_path / "saved")
        tokenizer.save_pretrained(tmp_path / "saved")
        folder, given = tmp_path / "saved", ()
    assert inspected(*given) == config
    assert inspected(*given, "--set", "size=4") == config.replace(size=4)
    assert inspected("--config", "paper") == JatConfig.paper()


@pytest.mark.parametrize("graph", ["clusters", "pairs", "stones"])
def test_80_columns_cut_nothing(graph: str, tiny_model: str) -> None:
    words = ["inspect", "--model", tiny_model, "--text", TEXT * 4, "--special-tokens"]
    if graph == "clusters":
        words += ["--config", "clustered", *CLUSTERED]
        narrow = CliRunner(env={"COLUMNS": "80"}).invoke(app, words)
        assert narrow.exit_code == 0
        assert "attention read" in narrow.output and "keys that it finds" in narrow.output
        assert "…" not in narrow.output
        return
    for change in (f"graph={graph}", "heads=all", "strength=[-0.75,0.25,-0.5]"):
        words += ["--set", change]
    narrow = CliRunner(env={"COLUMNS": "80"}).invoke(app, words)
    assert narrow.exit_code == 0
    assert "→" in narrow.output and "-0.75" in narrow.output
    assert "…" not in narrow.output


# --- fidelity ------------------------------------------------------------------------------------


def test_inspect_shows_what_heads_on_clusters_lose(
    run: Run, tiny_model: str, tmp_path: Path
) -> None:
    model, tokenizer = (kind.from_pretrained(tiny_model) for kind in (AutoModel, AutoTokenizer))
    batches = [tokenizer(text, return_tensors="pt") for text in (LONG, LONG[:150])]
    config = JatConfig.clustered(keys=4, size=2, segment=16, dense_below=0)
    wanted = jat_graph.fidelity(model.eval(), batches, config)
    call = ("inspect", "--model", tiny_model, "--fidelity", "--text", LONG, "--text", LONG[:150])
    files = ("--json", tmp_path / "report.json", "--picture", tmp_path / "heads.png")
    assert run(*call, *CLUSTERED, *files).output.startswith(wanted.table())
    assert Fidelity.load(tmp_path / "report.json") == wanted
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    some = run(*call, *CLUSTERED, "--layer", 1, "--head", 3, "--head", 0).output
    assert some.startswith(wanted.of_heads(1, (0, 3)).table(by_head=True))
    dense = run(*call).output
    assert "2 sequences read densely" in dense
    assert "With --set dense_below=0 clusters also read texts of this length." in dense


def test_a_decoder_tells_what_its_loss_becomes(run: Run, tiny_model: str, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=len(tokenizer), intermediate_size=48, **shape)
    for kind in (tokenizer, LlamaForCausalLM(config)):
        kind.save_pretrained(tmp_path / "decoder")
    call = ("--model", tmp_path / "decoder", "--text", LONG, "--text", LONG[:150])
    report = tmp_path / "report.json"
    shown = run("inspect", "--fidelity", *call, *CLUSTERED, "--json", report).output
    found = Fidelity.load(report).next_tokens
    assert found is not None
    assert found.summary() in shown
    short = (*CLUSTERED, "--set", "window=4")
    run("calibrate", *call, *short, "--tolerance", 9, "--output", tmp_path / "clusters.json")
    shown = run("inspect", *call, "--config", tmp_path / "clusters.json").output
    assert "keys that it finds in clusters" in shown and "densely" not in shown


def test_texts_beyond_the_table_of_positions_are_read_where_a_length_is_named(
    run: Run, tiny_model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report, settings, text = tmp_path / "report.json", tmp_path / "own.json", " ".join([LONG] * 9)
    small = ("--set", "dense_below=0", "--set", "size=2", "--set", "segment=128")
    call = ("--model", tiny_model, "--text", text, *small)
    with pytest.raises(ValueError, match="text must have at most 64 tokens for this model"):
        run("inspect", *call, "--fidelity")
    with pytest.raises(ValueError, match="--max-length needs --fidelity"):
        run("inspect", *call, "--max-length", 200)
    shown = run("inspect", *call, "--fidelity", "--max-length", 200, "--json", report).output
    assert "The table of 64 positions was made longer, for 200 tokens." in shown
    assert Fidelity.load(report).tokens == 200
    found = {}
    for length in (None, 64, 196):
        words = () if length is None else ("--max-length", length)
        run("calibrate", *call, *words, "--tolerance", 9, "--output", settings)
        (said,) = [
            own.getMessage() for own in caplog.records if "error on used" in own.getMessage()
        ]
        found[length] = said
        caplog.clear()
    assert found[None] == found[64] != found[196]


def test_calibrate_by_a_tolerance_and_look_at_it(run: Run, tiny_model: str, tmp_path: Path) -> None:
    settings, report = tmp_path / "clusters.json", tmp_path / "report.json"
    call = ("calibrate", "--model", tiny_model, "--text", LONG, *CLUSTERED)
    shown = run(*call, "--tolerance", 0.3, "--output", settings).output
    graph = JatConfig.load(settings).graph
    for layer, (keys, below) in enumerate(zip(graph.keys, graph.dense_below, strict=True)):
        words = ("dense" if b else str(k) for k, b in zip(keys, below, strict=True))
        assert f"layer {layer}: keys = {', '.join(words)}\n" in shown
    model = AutoModel.from_pretrained(tiny_model)
    attach(model, JatConfig.load(settings)).save_pretrained(tmp_path / "saved")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "saved")
    for words in ((tmp_path / "saved",), (tiny_model, "--config", settings)):
        run("inspect", "--fidelity", "--text", LONG, "--json", report, "--model", *words)
        found = Fidelity.load(report)
        assert found.config.graph == graph
        assert all(head.error < 0.6 for head in found.heads)


# --- models and their settings -------------------------------------------------------------------


@pytest.mark.parametrize("start", ["pairs", "stones"])
def test_models_keep_their_heads_unless_others_are_asked_for(
    start: str, run: Run, tiny_model: str, tmp_path: Path
) -> None:
    def inspected(model: object, *options: str) -> tuple[JatConfig, set[str]]:
        file = tmp_path / "report.json"
        run("inspect", "--model", model, "--text", TEXT, "--json", file, *options)
        content = read(file)
        strengths = {str(head.get("strengths")) for head in content["heads"]}
        return JatConfig.from_dict(content["config"]), strengths

    model, tokenizer = (kind.from_pretrained(tiny_model) for kind in (AutoModel, AutoTokenizer))
    given = ("--config", "stones") if start == "stones" else ("--set", "heads=2")
    config, before = inspected(tiny_model, *given)
    if start == "stones":
        assert {tokenizer.cls_token_id, tokenizer.sep_token_id} <= set(config.excluded_token_ids)
    else:
        assert config == JatConfig(heads=2)
    attach(model, config, tokenizer=tokenizer)
    learned = [part for name, part in model.named_parameters() if "strength" in name]
    assert bool(learned) == (start == "stones")
    assert before == {"[[0.0, 0.0, 0.0]]" if learned else "None"}
    for part in learned:
        part.data.fill_(0.5)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    kept, strengths = inspected(tmp_path / "saved")
    assert kept == attached_config(model) == config
    assert strengths == {"[[0.5, 0.5, 0.5]]" if learned else "None"}
    changed = inspected(tmp_path / "saved", "--set", "threshold=3")
    assert changed == (config.replace(threshold=3.0), strengths)
    assert inspected(tmp_path / "saved", "--config", "paper") == (JatConfig.paper(), {"None"})


# --- calibrate -----------------------------------------------------------------------------------


def test_calibrate_measures_thresholds_that_other_commands_take(
    run: Run, tiny_model: str, files: Files, tmp_path: Path
) -> None:
    settings = tmp_path / "pairs.json"
    call = ("calibrate", "--model", tiny_model, "--file", files.texts, "--batch-size", 4)
    shown = run(*call, "--set", "heads=2", "--density", 0.2, "--output", settings).output
    table = JatConfig.load(settings).graph.threshold
    assert len(table) == 2 and all(len(row) == 2 for row in table)
    assert all(f"{value:.3g}" in shown for row in table for value in row)
    model = AutoModel.from_pretrained(tiny_model).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    texts = files.texts.read_text(encoding="utf-8-sig").split("\n\n")
    batches = [tokenizer(texts[n : n + 4], padding=True, return_tensors="pt") for n in (0, 4, 8)]
    wanted = jat_graph.calibrate(model, batches, density=0.2, config=JatConfig(heads=2))
    assert wanted.graph.threshold == table
    report = tmp_path / "report.json"
    run("inspect", "--model", tiny_model, "--config", settings, "--text", TEXT, "--json", report)
    assert [head["threshold"] for head in read(report)["heads"]] == [
        x for row in table for x in row
    ]


# --- plot ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("--text", TEXT, "--layer", 1, "--head", 2),
        ("--text", TEXT, "--config", "stones", "--layer", 1, "--head", 2, "--tokens", "1:5"),
        ("--text", TEXT, "--config", "stones", "--special-tokens"),
        ("--text", TEXT, "--config", "clustered", "--layer", 1, "--head", 2),
        ("--text", LONG, "--config", "clustered", "--layer", 1, "--head", 2, *CLUSTERED),
        ("--pattern", "window:6+global:2,strided:8,fixed:4,causal,local:6"),
    ],
    ids=["pairs", "stones", "grid", "short", "clusters", "patterns"],
)
def test_plot_writes_a_picture(
    words: tuple[Any, ...], run: Run, tiny_model: str, tmp_path: Path
) -> None:
    model = () if "--pattern" in words else ("--model", tiny_model)
    run("plot", *model, *words, "--output", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    run("plot", *model, *words, "--output", tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert len(list(tmp_path.iterdir())) == 2


def test_plot_draws_the_way_of_a_token_down_the_tree(
    run: Run, tiny_model: str, tmp_path: Path
) -> None:
    head, file = ("--layer", 1, "--head", 2), tmp_path / "report.json"
    call = ("--model", tiny_model, "--text", LONG, *head, "--config", "clustered", *CLUSTERED)
    run("inspect", *call, "--json", file)
    readings = read(file)["heads"][0]["tokens"]
    for tokens, index in (((), -1), (("--tokens", "0:9"), 7)):
        shown = run("plot", *call, *tokens, "-o", tmp_path / "way.svg").output
        found = re.match(
            r"Layer 1, head 2: “.*” reads (\d+) of 51 keys exactly, with (\d+)%", shown
        )
        assert found and f"{readings[index]['exact']:.0%}" == f"{found[2]}%"
        word = readings[index]["token"]["text"].removeprefix("##")
        assert f"{word}” reads" in shown and "densely" not in shown
    shown = run("plot", *call, "--set", "dense_below=99", "-o", tmp_path / "way.svg").output
    assert "read densely (dense_below): this is what clusters would do." in shown


JUMPING = ("--config", "stones", "--set", "strength=0.5", "--set", "threshold=0.2")


@pytest.mark.parametrize(("made_for", "width"), [("screen", 6.8), ("paper", 6.8), ("column", 3.3)])
def test_plot_draws_for_a_paper_and_prints_the_caption(
    made_for: str, width: float, run: Run, tiny_model: str, tmp_path: Path
) -> None:
    call = ("plot", "--model", tiny_model, "--text", TEXT, *JUMPING, "--layer", 1, "--head", 2)
    shown = run(*call, "--for", made_for, "-o", tmp_path / "head.svg").output
    assert shown.startswith("Layer 1, head 2: threshold t = 0.2")
    assert "Jumps by gain" in shown
    picture = (tmp_path / "head.svg").read_text(encoding="utf-8")
    assert "Jumps by gain" not in picture
    assert float(re.findall(r'width="([\d.]+)pt"', picture)[0]) == pytest.approx(72 * width)
    sizes = set(re.findall(r"font(?:-size)?:[^;\"]*?([\d.]+)px", picture))
    assert (sizes == {"8"}) == (made_for != "screen")
    with pytest.raises(
        ValueError, match="--for must be one of screen, paper, column, got 'poster'"
    ):
        run(*call, "--for", "poster", "-o", tmp_path / "head.svg")


def test_plot_draws_one_jump_alone_in_the_head_that_it_gains_most_in(
    run: Run, tiny_model: str, tmp_path: Path
) -> None:
    call = ("--model", tiny_model, "--text", TEXT, *JUMPING, "--jump", "book", "pencil")
    ranked = run("inspect", *call, "--rank", "--json", tmp_path / "report.json").output
    gains = {
        (head["layer"], head["head"]): head["jumps"][0]["gain"]
        for head in read(tmp_path / "report.json")["heads"]
        if head["jumps"]
    }
    layer, head = max(gains, key=lambda place: gains[place])
    rows = [
        re.findall(r"\d+", line)[:2] for line in ranked.split("\n") if "book₂ → pencil₇" in line
    ]
    assert rows[0] == [str(layer), str(head)]
    assert len(rows) == len(gains)
    shown = run("plot", *call, "--for", "column", "-o", tmp_path / "jump.svg").output
    assert shown.startswith(f"Layer {layer}, head {head}: book 2 gives pencil 7 ")
    picture = (tmp_path / "jump.svg").read_text(encoding="utf-8")
    assert ">book 2</text>" in picture and ">pencil 7</text>" in picture
    with pytest.raises(
        ValueError, match="--jump must be joined by a head, got 'book' and 'pencil'"
    ):
        run("plot", *call, "--set", "threshold=9", "-o", tmp_path / "jump.svg")


def test_words_choose_tokens(run: Run, tiny_model: str, tmp_path: Path) -> None:
    call = ("inspect", "--model", tiny_model, "--text", TEXT, *JUMPING)
    run(*call, "--tokens", "book pencil", "--json", tmp_path / "report.json")
    jumps = [jump for head in read(tmp_path / "report.json")["heads"] for jump in head["jumps"]]
    assert jumps
    assert {jump[end]["text"] for jump in jumps for end in ("query", "key")} == {"book", "pencil"}


@pytest.mark.parametrize("kind", ["jumps", "clusters", "fidelity"])
def test_inspect_ranks_heads(kind: str, run: Run, tiny_model: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    call = ("inspect", "--model", tiny_model, "--text", LONG, "--rank", "--json", file)
    given = {"jumps": JUMPING, "clusters": ("--set", "graph=clusters", *CLUSTERED)}
    shown = run(*call, *given.get(kind, ("--fidelity", *CLUSTERED))).output
    name = {"jumps": "change", "clusters": "tv", "fidelity": "error"}[kind]
    worth = {(own["layer"], own["head"]): own[name] for own in read(file)["heads"]}
    rows = [tuple(map(int, found)) for found in re.findall(r"^\D*(\d+)\D+?(\d+) ", shown, re.M)]
    listed = [place for place in rows if place in worth][: len(worth)]
    assert listed == sorted(worth, key=lambda place: -worth[place])
    assert len(listed) == len(worth) > 3


def test_heads_are_ranked_over_all_texts(run: Run, tiny_model: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    call = ("--model", tiny_model, "--text", TEXT, "--text", LONG, *JUMPING, "--rank")
    shown = run("inspect", *call, "--json", file).output
    (first, second), means = ([one["heads"] for one in read(file)], {})
    for own, other in zip(first, second, strict=True):
        means[own["layer"], own["head"]] = (own["change"] + other["change"]) / 2
    rows = re.findall(r"^\D*(\d+)\D+?(\d+)\D+([\d.]+)%", shown, re.M)
    order = sorted(means, key=lambda place: -means[place])
    assert [(int(layer), int(head)) for layer, head, _ in rows] == order
    assert [value for *_, value in rows] == [f"{100 * means[place]:.1f}" for place in order]


# --- view ----------------------------------------------------------------------------------------


def test_view_writes_texts_trees_and_jumps(
    run: Run, tiny_model: str, files: Files, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    call = ("view", "--model", tiny_model, "--treebank", files.treebank, "-o", page)
    run(*call, "--text", "the pencil", "--config", files.stones, "--layer", 1, "--title", "Tiny")
    data = data_of(page)
    assert data["title"] == "Tiny"
    titles = [text["title"] for text in data["texts"]]
    assert titles == ["the pencil", "the book costs", "more than"]
    assert [text["parse"] is None for text in data["texts"]] == [True, False, False]
    kinds = [list(head["links"]) for head in data["texts"][0]["heads"]]
    assert kinds[0] == ["attention"]
    assert kinds[1] == kinds[3] == ["attention", "before", "difference", "graph"]
    assert all(
        (head["change"] is not None) == ("graph" in head["links"])
        for head in data["texts"][0]["heads"]
    )
    run(*call, "--sentences", "2:3")
    data = data_of(page)
    assert data["title"] == Path(tiny_model).name
    assert [text["title"] for text in data["texts"]] == ["more than"]
    assert {kind for head in data["texts"][0]["heads"] for kind in head["links"]} == {"attention"}


def data_of(page: Path) -> Any:
    html = page.read_text(encoding="utf-8")
    (data,) = re.findall(r'id="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(data)
