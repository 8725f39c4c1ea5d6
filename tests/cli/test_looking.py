"""inspect, calibrate, plot and view, from texts to files."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import jat_graph
from jat_graph import JatConfig
from jat_graph.hf import attach
from tests.cli.conftest import Run

TEXT = "the book costs more than the pencil"
LONG = " ".join([TEXT] * 7)  # 51 tokens
TEXTS = [" ".join(TEXT.split()[n % 5 :] + TEXT.split()[: n % 4]) for n in range(12)]
CLUSTERED = ("--set", "dense_below=0", "--set", "keys=4", "--set", "size=2", "--set", "segment=16")
JUMPING = ("--config", "stones", "--set", "strength=0.5", "--set", "threshold=0.2")
TREES = """1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tbook\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tcosts\t_\tVERB\t_\t_\t0\troot\t_\t_

1\tmore\t_\tADJ\t_\t_\t0\troot\t_\t_
2\tthan\t_\tADP\t_\t_\t1\tcase\t_\t_

"""

Inspect = Callable[..., tuple[str, Any]]


@pytest.fixture
def inspect(run: Run, tmp_path: Path) -> Inspect:
    """Return a function that runs ``inspect``, and returns what it shows and what it writes."""

    def call(model: object, *words: object) -> tuple[str, Any]:
        file = tmp_path / "report.json"
        shown = run("inspect", "--model", model, *words, "--json", file).output
        return shown, json.loads(file.read_text(encoding="utf-8"))

    return call


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file with a mark at its start and empty lines."""
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeff".encode() + "\n\n".join(TEXTS).encode())
    return path


@pytest.fixture
def stones(tmp_path: Path) -> Path:
    """Settings of two heads of one layer."""
    path = tmp_path / "stones.json"
    JatConfig.stones(heads=(1, 3), layers=(1,), strength=(0.5, 0.0, 0.25)).save(path)
    return path


@pytest.fixture
def tiny(tiny_model: str) -> Any:
    """The tiny model and its tokenizer."""
    kinds = AutoModel, AutoTokenizer
    return tuple(kind.from_pretrained(tiny_model) for kind in kinds)


def save(folder: Path, *parts: Any) -> Path:
    """Save a model and its tokenizer."""
    for part in parts:
        part.save_pretrained(folder)
    return folder


def with_position(token: dict[str, Any]) -> str:
    return token["text"] + str(token["index"]).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def places(content: Any) -> list[tuple[int, int]]:
    return [(head["layer"], head["head"]) for head in content["heads"]]


# --- inspect -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pairs", "stones"])
def test_inspect_shows_tables_and_writes_json(kind: str, inspect: Inspect, stones: Path) -> None:
    given = ("--set", "heads=[1,3]", "--set", "layers=[1]", "--set", "threshold=12")
    if kind == "stones":
        given = ("--config", str(stones))
    call = ("M", "--text", TEXT, *given, "--top")
    shown, content = inspect(*call, 2)
    assert content["text"] == TEXT
    assert places(content) == [(1, 1), (1, 3)]
    for head in content["heads"]:
        share = head["density"] if kind == "pairs" else head["linked"]
        assert (f"{share:.1%}" if kind == "pairs" else f"{share:.0%}") in shown
        assert len(head["jumps"]) == 2
        for jump in head["jumps"]:
            assert f"{with_position(jump['query'])} → {with_position(jump['key'])}" in shown
            assert f"{100 * jump['gain']:+.1f} " in shown
    assert "[CLS]" not in shown
    assert "[CLS]" in inspect(*call, 50, "--special-tokens")[0]


@pytest.mark.slow
def test_inspect_shows_clusters_and_writes_json(inspect: Inspect) -> None:
    call = ("M", "--text", LONG, "--layer", 1, "--set", "graph=clusters", "--top", 2)
    shown, content = inspect(*call, *CLUSTERED, "--set", "dense_below=4096", "--head", 2)
    assert "A text this short is read densely (dense_below)" in shown
    assert places(content) == [(1, 2)]
    (head,) = content["heads"]
    assert head["dense"]
    for share in ("share", "exact", "tv"):
        assert f"{head[share]:.1%}" in shown
    readings = sorted(head["tokens"], key=lambda own: -own["keys"][0]["share"])
    assert all(len(own["keys"]) == 2 for own in readings)
    for own in readings[:12]:
        row = rf"{with_position(own['token'])} +│ {own['exact']:.0%} +│ "
        keys = (f"{with_position(key['token'])} {key['share']:.1%}" for key in own["keys"])
        assert re.search(row + ", ".join(keys), shown)
    assert f"{len(readings) - 12} more" in shown
    shown, content = inspect(*call, *CLUSTERED)
    assert "densely" not in shown
    assert places(content) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    shown, _ = inspect("M", "--text", "the book", "--config", "clustered", "--head", 2)
    assert shown.startswith("All of a text this short is read exactly.")


def test_inspect_takes_several_texts_and_shows_a_part(inspect: Inspect, texts: Path) -> None:
    _, whole = inspect("M", "--file", texts)
    assert [report["text"] for report in whole] == TEXTS
    chosen = ("--layer", 1, "--head", 2, "--head", 0, "--tokens", "1:4")
    _, part = inspect("M", "--text", TEXTS[0], *chosen)
    assert places(part) == [(1, 0), (1, 2)]
    known = dict(zip(places(whole[0]), whole[0]["heads"], strict=True))
    for place, head in zip(places(part), part["heads"], strict=True):
        assert head["density"] == known[place]["density"]
        assert all(jump["query"]["index"] in (1, 2, 3) for jump in head["jumps"])


def test_words_choose_tokens(inspect: Inspect) -> None:
    _, content = inspect("M", "--text", TEXT, *JUMPING, "--tokens", "book pencil")
    jumps = [jump for head in content["heads"] for jump in head["jumps"]]
    assert {jump[end]["text"] for jump in jumps for end in ("query", "key")} == {"book", "pencil"}


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ("clusters", ("attention read", "keys that it finds")),
        ("pairs", ("→", "-0.75")),
        ("stones", ("→", "-0.75")),
    ],
)
def test_80_columns_cut_nothing(graph: str, words: tuple[str, ...], run: Run) -> None:
    given = ("--set", "heads=all", "--set", "strength=[-0.75,0.25,-0.5]")
    given = CLUSTERED if graph == "clusters" else given
    call = ("inspect", "--model", "M", "--text", TEXT * 4, "--special-tokens")
    narrow = run(*call, "--set", f"graph={graph}", *given, columns=80).output
    assert all(word in narrow for word in words)
    assert "…" not in narrow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "wanted", "changes"),
    [
        (("heads=2",), JatConfig(heads=2), {"threshold": 3.0}),
        (("graph=stones", "heads=all"), JatConfig.stones(), {"threshold": 3.0}),
        (
            ("graph=clusters", "heads=all", "keys=8", "layers=[1]"),
            JatConfig.clustered(keys=8, layers=(1,)),
            {"size": 4},
        ),
    ],
    ids=["pairs", "stones", "clusters"],
)
def test_models_keep_their_heads_unless_others_are_asked_for(
    given: tuple[str, ...],
    wanted: JatConfig,
    changes: dict[str, Any],
    inspect: Inspect,
    tiny: Any,
    tmp_path: Path,
) -> None:
    def inspected(model: object, *options: str) -> tuple[JatConfig, set[str]]:
        _, content = inspect(model, "--text", TEXT, *options)
        strengths = {str(head.get("strengths")) for head in content["heads"]}
        return JatConfig.from_dict(content["config"]), strengths

    model, tokenizer = tiny
    config, before = inspected("M", *(part for own in given for part in ("--set", own)))
    assert config.replace(excluded_token_ids=()) == wanted
    has_stones = wanted == JatConfig.stones()
    if has_stones:
        assert {tokenizer.cls_token_id, tokenizer.sep_token_id} <= set(config.excluded_token_ids)
    attach(model, config, tokenizer=tokenizer)
    learned = [part for name, part in model.named_parameters() if "strength" in name]
    assert bool(learned) == has_stones
    assert before == {"[[0.0, 0.0, 0.0]]" if has_stones else "None"}
    for part in learned:
        part.data.fill_(0.5)
    folder = save(tmp_path / "saved", model, tokenizer)
    kept, strengths = inspected(folder)
    assert kept == config
    assert strengths == {"[[0.5, 0.5, 0.5]]" if has_stones else "None"}
    ((name, value),) = changes.items()
    changed = inspected(folder, "--set", f"{name}={value:g}")
    assert changed == (config.replace(**changes), strengths)
    assert inspected(folder, "--config", "paper") == (JatConfig.paper(), {"None"})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("change", JUMPING),
        ("tv", ("--set", "graph=clusters", *CLUSTERED)),
        ("error", ("--fidelity", *CLUSTERED)),
    ],
)
def test_inspect_ranks_heads(name: str, given: tuple[str, ...], inspect: Inspect) -> None:
    shown, content = inspect("M", "--text", LONG, "--rank", *given)
    worth = {(own["layer"], own["head"]): own[name] for own in content["heads"]}
    rows = [tuple(map(int, found)) for found in re.findall(r"^\D*(\d+)\D+?(\d+) ", shown, re.M)]
    listed = [place for place in rows if place in worth][: len(worth)]
    assert listed == sorted(worth, key=lambda place: -worth[place])
    assert len(listed) == len(worth) > 3


def test_heads_are_ranked_over_all_texts(inspect: Inspect) -> None:
    call = ("--text", TEXT, "--text", LONG, *JUMPING, "--rank")
    shown, (first, second) = inspect("M", *call)
    both = zip(first["heads"], second["heads"], strict=True)
    changes = [(own["change"] + other["change"]) / 2 for own, other in both]
    means = dict(zip(places(first), changes, strict=True))
    rows = re.findall(r"^\D*(\d+)\D+?(\d+)\D+([\d.]+)%", shown, re.M)
    order = sorted(means, key=lambda place: -means[place])
    assert [(int(layer), int(head)) for layer, head, _ in rows] == order
    assert [value for *_, value in rows] == [f"{100 * means[place]:.1f}" for place in order]


# --- fidelity ------------------------------------------------------------------------------------


def test_inspect_shows_what_heads_on_clusters_lose(run: Run, tiny: Any, tmp_path: Path) -> None:
    model, tokenizer = tiny
    batches = [tokenizer(text, return_tensors="pt") for text in (LONG, LONG[:150])]
    config = JatConfig.clustered(keys=4, size=2, segment=16, dense_below=0)
    wanted = jat_graph.fidelity(model, batches, config)
    call = ("inspect", "--model", "M", "--fidelity", "--text", LONG, "--text", LONG[:150])
    files = ("--json", tmp_path / "report.json", "--picture", tmp_path / "heads.png")
    assert run(*call, *CLUSTERED, *files).output.startswith(wanted.table())
    assert json.loads((tmp_path / "report.json").read_text()) == wanted.to_dict()
    assert (tmp_path / "heads.png").read_bytes().startswith(b"\x89PNG")
    ranked = replace(wanted, heads=wanted.ranked())
    assert run(*call, *CLUSTERED, "--rank").output.startswith(ranked.table(by_head=True))
    with pytest.raises(ValueError, match="--fidelity uses all heads"):
        run(*call, *CLUSTERED, "--layer", 1)
    dense = run(*call).output
    assert "2 sequences read densely" in dense
    assert "With --set dense_below=0 clusters also read texts of this length." in dense


@pytest.mark.slow
def test_a_decoder_tells_what_its_loss_becomes(run: Run, tiny: Any, tmp_path: Path) -> None:
    _, tokenizer = tiny
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=len(tokenizer), intermediate_size=48, **shape)
    folder = save(tmp_path / "decoder", tokenizer, LlamaForCausalLM(config))
    call = ("--model", folder, "--text", LONG, "--text", LONG[:150])
    report = tmp_path / "report.json"
    shown = run("inspect", "--fidelity", *call, *CLUSTERED, "--json", report).output
    found = json.loads(report.read_text())["next_tokens"]
    assert f"Loss {found['loss']:.3f} per token, by clusters {found['change']:+.4f} (95" in shown
    short = (*CLUSTERED, "--set", "window=4")
    run("calibrate", *call, *short, "--tolerance", 9, "--output", tmp_path / "clusters.json")
    shown = run("inspect", *call, "--config", tmp_path / "clusters.json").output
    assert "keys that it finds in clusters" in shown and "densely" not in shown


def test_texts_beyond_the_table_of_positions_are_read_where_a_length_is_named(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report, text = tmp_path / "report.json", " ".join([LONG] * 9)
    small = ("--set", "dense_below=0", "--set", "size=2", "--set", "segment=128")
    call = ("--model", "M", "--text", text, *small)
    with pytest.raises(ValueError, match="text must have at most 64 tokens for this model"):
        run("inspect", *call, "--fidelity")
    shown = run("inspect", *call, "--fidelity", "--max-length", 200, "--json", report).output
    assert "The table of 64 positions was made longer, for 200 tokens." in shown
    assert json.loads(report.read_text())["tokens"] == 200
    said = []
    for words in ((), ("--max-length", 64), ("--max-length", 196)):
        caplog.clear()
        run("calibrate", *call, *words, "--tolerance", 9, "--output", tmp_path / "own.json")
        said += [line for line in caplog.messages if "error on used" in line]
    default, at_64, at_196 = said
    assert default == at_64 != at_196


# --- calibrate -----------------------------------------------------------------------------------


def test_calibrate_by_a_tolerance_and_look_at_it(run: Run, tiny: Any, tmp_path: Path) -> None:
    settings, report = tmp_path / "clusters.json", tmp_path / "report.json"
    call = ("calibrate", "--model", "M", "--text", LONG, *CLUSTERED)
    shown = run(*call, "--tolerance", 0.3, "--output", settings).output
    graph = JatConfig.load(settings).graph
    for layer, (keys, below) in enumerate(zip(graph.keys, graph.dense_below, strict=True)):
        words = ("dense" if b else str(k) for k, b in zip(keys, below, strict=True))
        assert f"layer {layer}: keys = {', '.join(words)}\n" in shown
    model, tokenizer = tiny
    folder = save(tmp_path / "saved", attach(model, JatConfig.load(settings)), tokenizer)
    for given in ((folder,), ("M", "--config", settings)):
        run("inspect", "--fidelity", "--text", LONG, "--json", report, "--model", *given)
        found = json.loads(report.read_text())
        assert JatConfig.from_dict(found["config"]).graph == graph
        assert all(head["error"] < 0.6 for head in found["heads"])


@pytest.mark.slow
def test_calibrate_measures_thresholds_that_other_commands_take(
    run: Run, inspect: Inspect, tiny: Any, texts: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "pairs.json"
    call = ("calibrate", "--model", "M", "--file", texts, "--batch-size", 4)
    shown = run(*call, "--set", "heads=2", "--density", 0.2, "--output", settings).output
    table = JatConfig.load(settings).graph.threshold
    assert len(table) == 2 and all(len(row) == 2 for row in table)
    assert all(f"{value:.3g}" in shown for row in table for value in row)
    model, tokenizer = tiny
    batches = [tokenizer(TEXTS[n : n + 4], padding=True, return_tensors="pt") for n in (0, 4, 8)]
    wanted = jat_graph.calibrate(model, batches, density=0.2, config=JatConfig(heads=2))
    assert wanted.graph.threshold == table
    _, content = inspect("M", "--config", settings, "--text", TEXT)
    assert [head["threshold"] for head in content["heads"]] == [x for row in table for x in row]


# --- plot ----------------------------------------------------------------------------------------


@pytest.mark.slow
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
    ids=["pairs", "stones", "any", "short", "clusters", "patterns"],
)
def test_plot_writes_a_picture(words: tuple[Any, ...], run: Run, tmp_path: Path) -> None:
    model = () if "--pattern" in words else ("--model", "M")
    run("plot", *model, *words, "--output", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    run("plot", *model, *words, "--output", tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_plot_draws_the_way_of_a_token_down_the_tree(
    run: Run, inspect: Inspect, tmp_path: Path
) -> None:
    own = ("--text", LONG, "--layer", 1, "--head", 2, "--config", "clustered", *CLUSTERED)
    _, content = inspect("M", *own)
    readings = content["heads"][0]["tokens"]
    call = ("plot", "--model", "M", *own, "-o", tmp_path / "way.svg")
    for tokens, index in (((), -1), (("--tokens", "0:9"), 7)):
        shown = run(*call, *tokens).output
        found = re.match(
            r"Layer 1, head 2: “.*” reads (\d+) of 51 keys exactly, with (\d+)%", shown
        )
        assert found and f"{readings[index]['exact']:.0%}" == f"{found[2]}%"
        word = readings[index]["token"]["text"].removeprefix("##")
        assert f"{word}” reads" in shown and "densely" not in shown
    shown = run(*call, "--set", "dense_below=99").output
    assert "read densely (dense_below): this is what clusters would do." in shown


@pytest.mark.slow
def test_plot_draws_as_wide_as_a_page_and_prints_the_caption(run: Run, tmp_path: Path) -> None:
    call = ("plot", "--model", "M", "--text", TEXT, *JUMPING, "--layer", 1, "--head", 2)
    shown = run(*call, "-o", tmp_path / "head.svg").output
    assert shown.startswith("Layer 1, head 2: threshold t = 0.2")
    picture = (tmp_path / "head.svg").read_text(encoding="utf-8")
    assert "threshold t" not in picture
    assert float(re.findall(r'width="([\d.]+)pt"', picture)[0]) == pytest.approx(72 * 6.8)


def test_plot_marks_one_jump_in_the_head_that_it_gains_most_in(
    run: Run, inspect: Inspect, tmp_path: Path
) -> None:
    jump = ("--text", TEXT, *JUMPING, "--jump", "book", "pencil")
    ranked, content = inspect("M", *jump, "--rank")
    heads = zip(places(content), content["heads"], strict=True)
    gains = {place: head["jumps"][0]["gain"] for place, head in heads if head["jumps"]}
    layer, head = max(gains, key=lambda place: gains[place])
    rows = [line for line in ranked.split("\n") if "book₂ → pencil₇" in line]
    assert re.findall(r"\d+", rows[0])[:2] == [str(layer), str(head)]
    assert len(rows) == len(gains)
    call = ("plot", "--model", "M", *jump, "-o", tmp_path / "jump.svg")
    shown = run(*call).output
    assert shown.startswith(f"Layer {layer}, head {head}: threshold t = ")
    picture = (tmp_path / "jump.svg").read_text(encoding="utf-8")
    assert ">1: book → pencil (" in picture and ">2: " not in picture
    with pytest.raises(ValueError, match="--jump must be joined by a head, got 'book' and 'penc"):
        run(*call, "--set", "threshold=9")


# --- view ----------------------------------------------------------------------------------------


def data_of(page: Path) -> Any:
    html = page.read_text(encoding="utf-8")
    (data,) = re.findall(r'id="data">(.*?)</script>', html, re.DOTALL)
    return json.loads(data)


def test_view_writes_texts_trees_and_jumps(run: Run, stones: Path, tmp_path: Path) -> None:
    page, treebank = tmp_path / "page.html", tmp_path / "trees.conllu"
    treebank.write_text(TREES, encoding="utf-8")
    call = ("view", "--model", "M", "--treebank", treebank, "-o", page)
    run(*call, "--text", "the pencil", "--config", stones, "--layer", 1, "--title", "Tiny")
    data = data_of(page)
    assert data["title"] == "Tiny"
    assert [text["title"] for text in data["texts"]] == [
        "the pencil",
        "the book costs",
        "more than",
    ]
    assert [text["parse"] is None for text in data["texts"]] == [True, False, False]
    heads = data["texts"][0]["heads"]
    kinds = [list(head["links"]) for head in heads]
    assert kinds[0] == ["attention"]
    assert kinds[1] == kinds[3] == ["attention", "before", "difference", "graph"]
    assert all((head["change"] is not None) == ("graph" in head["links"]) for head in heads)
    run(*call, "--sentences", "2:3")
    data = data_of(page)
    assert data["title"].startswith("tiny")
    assert [text["title"] for text in data["texts"]] == ["more than"]
    assert {kind for head in data["texts"][0]["heads"] for kind in head["links"]} == {"attention"}


def test_without_texts_inspect_tells_what_each_layer_will_do(run: Run) -> None:
    shown = run("inspect", "--model", "M").output
    layers = re.findall(r"layer\.(\d).*BertSelfAttention.*cluster heads", shown)
    assert layers == [str(number) for number in range(len(layers))] and layers
    settings = ("--config", "stones", "--set", "layers=[1]")
    told = run("inspect", "--model", "M", *settings).output
    assert re.findall(r"layer\.(\d).*(SDPA|jump heads)", told) == [
        (layer, "jump heads" if layer == "1" else "SDPA") for layer in layers
    ]
