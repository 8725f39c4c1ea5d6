"""Graphs of tiny models against their outputs, pair by pair; their files, labels, and PyG."""

import json
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch_geometric.data import InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATv2Conv
from torch_geometric.transforms import AddSelfLoops
from transformers import MambaConfig, MambaModel, PreTrainedModel, PreTrainedTokenizerFast

from jat_graph import JatConfig
from jat_graph.data import AttentionGraphs
from jat_graph.hf import attach, detach, disabled
from tests.data.support import TEXTS, assert_is, attention_maps, slow_graph, tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model
from tests.support import MemoryMeter, captured_layers, layer_weights

HEADS = [(0, 1), (2, 3)]


@pytest.fixture
def model() -> PreTrainedModel:
    model = tiny_model("bert").double()
    model.set_attn_implementation("eager")
    return model


def dataset(root: Path, model: PreTrainedModel, **settings: Any) -> AttentionGraphs:
    options = {"texts": TEXTS, "tokenizer": tiny_tokenizer(), "heads": HEADS, "max_neighbors": 2}
    return AttentionGraphs(root, model=model, **options | settings)


@pytest.fixture
def readings(model: PreTrainedModel) -> list[int]:
    """How many texts the model reads in each call."""
    rows: list[int] = []
    model.register_forward_pre_hook(
        lambda _, args, inputs: rows.append(len(inputs["input_ids"])), with_kwargs=True
    )
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bert", "roberta", "distilbert", "albert", "modernbert", "gpt2", "llama"]
)
@pytest.mark.parametrize("nodes", ["tokens", "words"])
@pytest.mark.parametrize("limit", [2, None])
def test_graphs_are_those_of_each_text_alone(
    name: str, nodes: str, limit: int | None, tmp_path: Path
) -> None:
    model, tokenizer = tiny_model(name).double(), tiny_tokenizer(model_max_length=48)
    before = model.config._attn_implementation
    options = {"max_neighbors": limit, "nodes": nodes, "layer": 2, "batch_size": 3}
    found = dataset(tmp_path, model, tokenizer=tokenizer, **options)
    assert isinstance(found, InMemoryDataset) and found.heads == tuple(HEADS)
    assert model.config._attn_implementation == before  # attention was asked for, and only then
    model.set_attn_implementation("eager")
    for text, graph in zip(TEXTS, found, strict=True):
        states, rows, words = attention_maps(model, tokenizer, text)
        maps = [rows[layer][head] for layer, head in HEADS]
        # Llama's softmax is in float32.
        tolerance = 1e-6 if name == "llama" else 1e-10
        own = words if nodes == "words" else None
        assert_is(graph, slow_graph(states[2], maps, limit, own), tolerance)
        assert not graph.has_self_loops()
        ids = graph.word_ids if nodes == "words" else graph.input_ids
        tokens = tokenizer(text)["input_ids"]
        assert ids.tolist() == (list(range(len(text.split()))) if nodes == "words" else tokens)


@pytest.mark.parametrize(
    "config", [tiny_config(), JatConfig.stones(layers=(0, 2)), tiny_config(soft_temperature=0.1)]
)
def test_jumps_are_the_graphs_of_jump_heads(config: JatConfig, tmp_path: Path) -> None:
    tokenizer, heads = tiny_tokenizer(), ((2, 2), (0, 0))
    model = attach(tiny_model("bert").double(), config, tokenizer)
    graphs = dataset(tmp_path, model, edges="jumps", heads=heads, layer=2, max_neighbors=None)
    assert any(graph.num_edges for graph in graphs)
    for text, graph in zip(TEXTS, graphs, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        layers = {own.layer: own for own in captured_layers(model, inputs)}
        maps = [
            layer_weights(layers[layer])[0, layers[layer].heads.index(head)]
            for layer, head in heads
        ]
        with torch.no_grad():
            hidden = model(**inputs, output_hidden_states=True)
        assert_is(graph, slow_graph(hidden.hidden_states[2][0], maps, None))


def test_every_head_is_the_default(tmp_path: Path, model: PreTrainedModel) -> None:
    assert dataset(tmp_path, model, heads=None).heads == tuple(
        (layer, head) for layer in range(3) for head in range(4)
    )
    attach(model, tiny_config(layers=(0, 2)))
    jumping = dataset(tmp_path, model, heads=None, edges="jumps").heads
    assert jumping == ((0, 0), (0, 2), (2, 0), (2, 2))


def test_dropout_is_off_the_mode_is_kept_and_low_precision_read_in_float32(tmp_path: Path) -> None:
    model = tiny_model("bert").bfloat16().train()
    first, second = (dataset(tmp_path / part, model)[3] for part in "ab")
    assert model.training and torch.equal(first.x, second.x) and not first.x.requires_grad
    assert first.x.dtype == first.edge_attr.dtype == torch.float32


def test_memory_is_that_of_one_batch_beside_the_graphs(
    tmp_path: Path, model: PreTrainedModel
) -> None:
    peaks = []
    for count in (64, 192):  # texts of one file, and of three
        with MemoryMeter() as meter:
            options = {"texts": ["dook " * 40] * count, "batch_size": 64, "max_neighbors": 1}
            dataset(tmp_path / str(count), model, **options)
        peaks.append(meter.peak)
    assert peaks[1] <= 1.3 * peaks[0]


# --- texts ---------------------------------------------------------------------------------------


def test_words_are_those_of_strings_and_of_lists(tmp_path: Path, model: PreTrainedModel) -> None:
    texts = ["barks dook", "fillingly"]
    strings = dataset(tmp_path / "a", model, texts=texts, nodes="words")
    split = [text.split() for text in texts]
    lists = dataset(tmp_path / "b", model, texts=split, nodes="words")
    assert [graph.num_nodes for graph in strings] == [2, 1]
    for one, two in zip(strings, lists, strict=True):
        assert torch.equal(one.x, two.x) and torch.equal(one.edge_attr, two.edge_attr)


def test_words_of_a_byte_level_tokenizer_are_not_glued_together(
    tmp_path: Path, model: PreTrainedModel
) -> None:
    vocabulary = {"the": 0, "Ġbank": 1, "Ġ": 2, "bank": 3, "thebank": 4, "?": 5}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64)
    texts = [["the", "bank"], ["bank", "the"]]
    options: dict[str, Any] = {"texts": texts, "tokenizer": tokenizer, "heads": [(0, 1)]}
    tokens = dataset(tmp_path, model, **options)
    assert [graph.input_ids.tolist() for graph in tokens] == [[0, 1], [3, 5]]
    for text, graph in zip(texts, dataset(tmp_path, model, **options, nodes="words"), strict=True):
        states, rows, _ = attention_maps(model, tokenizer, " ".join(text))
        assert_is(graph, slow_graph(states[-1], [rows[0][1]], None, [0, 1]))


def test_long_texts_are_cut_to_what_the_model_takes(tmp_path: Path, model: PreTrainedModel) -> None:
    options: dict[str, Any] = {"tokenizer": tiny_tokenizer(model_max_length=10**30)}
    labels = [list(range(99))]
    (whole,) = dataset(tmp_path, model, texts=[["dook"] * 99], y=labels, nodes="words", **options)
    assert whole.y.tolist() == list(range(62))  # with two special tokens 64
    (cut,) = dataset(tmp_path, model, texts=["dook " * 99], max_length=7, **options)
    assert cut.num_nodes == 7


# --- files ---------------------------------------------------------------------------------------


def test_the_same_call_reads_and_another_one_makes_its_own(
    tmp_path: Path, model: PreTrainedModel, readings: list[int]
) -> None:
    first = dataset(tmp_path, model)
    assert sum(readings) == 5
    again = dataset(tmp_path, model, y=[0, 1, 2, 3, 4], batch_size=3)
    assert sum(readings) == 5 and again.processed_dir == first.processed_dir
    assert all(torch.equal(a.x, b.x) for a, b in zip(first, again, strict=True))
    model.config._name_or_path = "elsewhere"
    assert dataset(tmp_path, model).processed_dir == first.processed_dir
    others: list[dict[str, Any]] = [
        {"texts": TEXTS[:4]},
        {"texts": [*TEXTS[:4], "dook dook dill"]},
        {"nodes": "words"},
        {"heads": HEADS[::-1]},
        {"layer": 0},
        {"max_neighbors": None},
        {"max_length": 5},
    ]
    folders = {dataset(tmp_path, model, **settings).processed_dir for settings in others}
    assert len(folders - {first.processed_dir}) == len(others)
    attach(model, tiny_config())
    jumping = dataset(tmp_path, model)
    with disabled(model):
        off = dataset(tmp_path, model)
    assert not torch.equal(jumping[1].x, off[1].x)
    assert dataset(tmp_path, detach(model)).processed_dir == first.processed_dir
    with torch.no_grad():
        model.encoder.layer[0].output.dense.bias[0] += 1
    assert dataset(tmp_path, model).processed_dir not in folders | {first.processed_dir}


def test_it_goes_on_where_it_stopped(
    tmp_path: Path, model: PreTrainedModel, readings: list[int]
) -> None:
    texts = TEXTS * 26  # 64 of a file
    whole = dataset(tmp_path, model, texts=texts)
    kept = [path.read_bytes() for path in map(Path, whole.processed_paths)]
    Path(whole.processed_paths[1]).unlink()
    readings.clear()
    again = dataset(tmp_path, model, texts=texts)
    assert sum(readings) == 64 and len(kept) == 3
    assert [path.read_bytes() for path in map(Path, again.processed_paths)] == kept


def test_the_files_are_safetensors_and_json(tmp_path: Path, model: PreTrainedModel) -> None:
    folder = Path(dataset(tmp_path, model).processed_dir)
    graphs = folder / "graphs-00000.safetensors"
    assert sorted(folder.iterdir()) == [graphs, folder / "settings.json"]
    assert list(tmp_path.iterdir()) == [folder] and not zipfile.is_zipfile(graphs)
    with pytest.raises(ValueError), graphs.open("rb") as file:
        list(pickletools.genops(file))
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    assert settings["heads"] == [[0, 1], [2, 3]] and settings["max_neighbors"] == 2
    graphs.write_bytes(graphs.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"graphs-00000.safetensors is damaged") as caught:
        dataset(tmp_path, model)
    assert "\n" not in str(caught.value)


def test_a_reading_that_fails_leaves_no_file(
    tmp_path: Path, model: PreTrainedModel, readings: list[int]
) -> None:
    def stop(*_: Any) -> None:
        if len(readings) > 1:
            raise RuntimeError("stop")

    model.register_forward_pre_hook(stop)
    with pytest.raises(RuntimeError, match="stop"):
        dataset(tmp_path, model)
    assert len(readings) == 2 and not list(tmp_path.rglob("*.safetensors"))


# --- labels --------------------------------------------------------------------------------------


def test_labels_are_of_graphs_or_of_their_nodes(tmp_path: Path, model: PreTrainedModel) -> None:
    numbers = dataset(tmp_path, model, y=[0, 2, 1, 0, 1])
    assert [graph.y.tolist() for graph in numbers] == [[0], [2], [1], [0], [1]]
    assert numbers.num_classes == 3
    assert dataset(tmp_path, model, y=torch.tensor([0.5] * 5))[0].y.dtype == torch.float32
    labels = [list(range(len(tiny_tokenizer()(text)["input_ids"]))) for text in TEXTS]
    assert [graph.y.tolist() for graph in dataset(tmp_path, model, y=labels)] == labels


def test_labels_of_words_go_to_the_words_that_are_left(
    tmp_path: Path, model: PreTrainedModel
) -> None:
    texts = [["dook", "barkings", "dill"], [], ["lark"]]
    labels = [[4, 5, 6], [], [7]]
    graphs = dataset(tmp_path, model, texts=texts, y=labels, nodes="words", max_length=5)
    assert [graph.y.tolist() for graph in graphs] == [[4, 5], [], [7]]
    assert graphs[1].num_nodes == 0 and graphs[1].num_edges == 0
    assert next(iter(DataLoader(graphs, batch_size=3))).y.dtype == torch.long


def test_a_layer_trains_on_a_batch(tmp_path: Path, model: PreTrainedModel) -> None:
    graphs = dataset(
        tmp_path, model.float(), y=[0, 1, 0, 1, 0], transform=AddSelfLoops("edge_attr")
    )
    batch = next(iter(DataLoader(graphs, batch_size=5)))
    assert batch.has_self_loops() and batch.num_graphs == 5
    layer = GATv2Conv(32, 3, edge_dim=2, add_self_loops=False)
    layer(batch.x, batch.edge_index, batch.edge_attr).sum().backward()
    assert layer.lin_edge.weight.grad.abs().sum() > 0


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"y": [0, 1]}, "y"),
        ({"y": [0, 1, [1, 2], 0, 1]}, r"y\[2\]"),
        ({"batch_size": 0}, "batch_size"),
        ({"texts": "dook"}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": ["dook", ["dook"]]}, r"texts\[1\]"),
        ({"texts": [["dook"], "dook"]}, r"texts\[1\]"),
        ({"texts": [["dook", 3]]}, r"texts\[0\]"),
        ({"texts": [None]}, r"texts\[0\]"),
        (
            {"texts": [["dook", "a\udc80"]]},
            r"texts\[0\] must be Unicode text, got a lone surrogate",
        ),
        ({"nodes": "letters"}, "nodes"),
        ({"edges": "trees"}, "edges"),
        ({"heads": ()}, "heads"),
        ({"heads": (3, 4)}, "heads"),
        ({"heads": [(0, 4)]}, "heads"),
        ({"heads": [(0, 1), [0, 1]]}, "heads"),
        ({"layer": 4}, "layer"),
        ({"layer": -5}, "layer"),
        ({"max_neighbors": 0}, "max_neighbors"),
        ({"max_length": 2}, "max_length"),
        ({"edges": "jumps"}, "model must have jump heads"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, model: PreTrainedModel, settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(ValueError, match=f"^{name} ") as caught:
        dataset(tmp_path, model, **settings)
    assert "\n" not in str(caught.value)


def test_a_model_without_what_is_asked_is_refused(tmp_path: Path, model: PreTrainedModel) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        dataset(tmp_path / "file", model)
    some = attach(tiny_model("bert"), tiny_config(layers=(0,)))
    with pytest.raises(ValueError, match="heads must"):
        dataset(tmp_path, some, edges="jumps", heads=[(2, 3)])
    shared = attach(tiny_model("albert"), tiny_config())
    with pytest.raises(ValueError, match="edges must"):
        dataset(tmp_path, shared, edges="jumps", heads=None)
    mamba = MambaModel(MambaConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, state_size=2))
    for other in (torch.nn.Linear(2, 2), tiny_model("bart"), mamba):
        with pytest.raises(ValueError, match=r"^model must"):
            dataset(tmp_path, other)  # type: ignore[arg-type]
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    with pytest.raises(ValueError, match=r"^texts\[1\] must"):  # which has no token
        dataset(tmp_path, model, texts=["dook", ""], tokenizer=tokenizer)
