"""The data set: its files, its labels, and PyG around it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATv2Conv
from torch_geometric.transforms import AddSelfLoops
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from jat_graph.data import AttentionGraphs, attention_graphs
from jat_graph.data.reading import Reading
from jat_graph.hf import attach, disabled
from tests.data.support import TEXTS, assert_is, attention_maps, slow_graph, tiny_tokenizer
from tests.hf.models import tiny_config, tiny_model

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
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Texts that models read, by their rows."""
    rows, read = [], Reading.graphs

    def count(*args: Any) -> Any:
        rows.extend(args[3])
        return read(*args)

    monkeypatch.setattr(Reading, "graphs", count)
    return rows


def test_it_is_an_in_memory_dataset_in_the_order_of_the_texts(
    tmp_path: Path, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_graphs, "SHARD", 2)
    found = dataset(tmp_path, model, batch_size=2)
    assert isinstance(found, InMemoryDataset) and len(found) == len(TEXTS)
    assert found.num_edge_features == 2 and found.num_node_features == 32
    assert found.heads == tuple(HEADS) and len(found.processed_paths) == 3
    for text, graph in zip(TEXTS, found, strict=True):
        states, rows, _ = attention_maps(model, tiny_tokenizer(), text)
        maps = [rows[layer][head] for layer, head in HEADS]
        assert_is(graph, slow_graph(states[-1], maps, 0.0, 2))
        assert not graph.has_self_loops()


@pytest.mark.parametrize("nodes", ["tokens", "words"])
def test_a_pretrained_model(minilm_path: str, tmp_path: Path, nodes: str) -> None:
    model = AutoModel.from_pretrained(minilm_path, attn_implementation="eager").double()
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    texts = ["Book costs more than pencil.", "Dogs bark.", "Unbelievably, nobody photosynthesises!"]
    settings: dict[str, Any] = {"nodes": nodes, "layer": 3, "min_weight": 0.05, "max_neighbors": 3}
    graphs = AttentionGraphs(tmp_path, texts, model, tokenizer, **settings)
    assert graphs.num_edge_features == 6 * 12
    for text, graph in zip(texts, graphs, strict=True):
        states, rows, words = attention_maps(model, tokenizer, text)
        maps = [own for layer in rows for own in layer]
        assert_is(graph, slow_graph(states[3], maps, 0.05, 3, words if nodes == "words" else None))


def test_the_same_call_reads_and_another_one_makes_its_own(
    tmp_path: Path, model: PreTrainedModel, readings: list[int]
) -> None:
    first = dataset(tmp_path, model)
    assert sorted(readings) == [0, 1, 2, 3, 4]
    again = dataset(tmp_path, model, y=[0, 1, 2, 3, 4], batch_size=3)
    assert len(readings) == 5 and again.processed_dir == first.processed_dir
    assert all(torch.equal(a.x, b.x) for a, b in zip(first, again, strict=True))
    others: list[dict[str, Any]] = [
        {"texts": TEXTS[:4]},
        {"texts": [*TEXTS[:4], "dook dook dill"]},
        {"nodes": "words"},
        {"heads": HEADS[::-1]},
        {"layer": 0},
        {"min_weight": 0.1},
        {"max_neighbors": None},
        {"max_length": 5},
    ]
    folders = {dataset(tmp_path, model, **settings).processed_dir for settings in others}
    assert len(folders - {first.processed_dir}) == len(others)
    with torch.no_grad():
        model.encoder.layer[0].output.dense.bias[0] += 1
    assert dataset(tmp_path, model).processed_dir not in folders | {first.processed_dir}


def test_heads_that_are_switched_off_make_other_graphs(tmp_path: Path) -> None:
    model = attach(tiny_model("bert").double(), tiny_config())
    jumping = dataset(tmp_path, model)
    with disabled(model):
        base = dataset(tmp_path, model)
    assert not torch.equal(jumping[1].x, base[1].x)


def test_it_goes_on_where_it_stopped(
    tmp_path: Path, model: PreTrainedModel, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_graphs, "SHARD", 2)
    whole = dataset(tmp_path, model)
    kept = [path.read_bytes() for path in map(Path, whole.processed_paths)]
    Path(whole.processed_paths[1]).unlink()
    readings.clear()
    again = dataset(tmp_path, model)
    assert len(readings) == 2
    assert [path.read_bytes() for path in map(Path, again.processed_paths)] == kept


def test_the_files_are_safetensors_and_json(tmp_path: Path, model: PreTrainedModel) -> None:
    folder = Path(dataset(tmp_path, model).processed_dir)
    assert sorted(path.name for path in folder.iterdir()) == [
        "graphs-00000.safetensors",
        "settings.json",
    ]
    assert list(tmp_path.iterdir()) == [folder]
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    assert settings["heads"] == [[0, 1], [2, 3]] and settings["max_neighbors"] == 2


def test_labels_of_graphs(tmp_path: Path, model: PreTrainedModel) -> None:
    numbers = dataset(tmp_path, model, y=[0, 2, 1, 0, 1])
    assert [graph.y.tolist() for graph in numbers] == [[0], [2], [1], [0], [1]]
    assert numbers.num_classes == 3
    assert dataset(tmp_path, model, y=torch.tensor([0.5] * 5))[0].y.dtype == torch.float32


def test_labels_of_words_go_to_the_words_that_are_left(
    tmp_path: Path, model: PreTrainedModel
) -> None:
    texts = [["dook", "barkings", "dill"], [], ["lark"]]
    labels = [[4, 5, 6], [], [7]]
    graphs = dataset(tmp_path, model, texts=texts, y=labels, nodes="words", max_length=5)
    assert [graph.y.tolist() for graph in graphs] == [[4, 5], [], [7]]
    assert graphs[1].num_nodes == 0 and graphs[1].num_edges == 0
    assert next(iter(DataLoader(graphs, batch_size=3))).y.dtype == torch.long


def test_labels_of_tokens(tmp_path: Path, model: PreTrainedModel) -> None:
    labels = [list(range(len(tiny_tokenizer()(text)["input_ids"]))) for text in TEXTS]
    graphs = dataset(tmp_path, model, y=labels)
    assert [graph.y.tolist() for graph in graphs] == labels


def test_one_text_is_a_data_set_too(tmp_path: Path, model: PreTrainedModel) -> None:
    assert len(dataset(tmp_path, model, texts=TEXTS[1:2], y=[1])) == 1


def test_a_layer_trains_on_a_batch(tmp_path: Path, model: PreTrainedModel) -> None:
    graphs = dataset(
        tmp_path, model.float(), y=[0, 1, 0, 1, 0], transform=AddSelfLoops("edge_attr")
    )
    batch = next(iter(DataLoader(graphs, batch_size=5)))
    assert batch.has_self_loops() and batch.num_graphs == 5
    layer = GATv2Conv(32, 3, edge_dim=2, add_self_loops=False)
    layer(batch.x, batch.edge_index, batch.edge_attr).sum().backward()
    assert layer.lin_edge.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"y": [0, 1]}, "y must have an entry for each of 5 texts, got 2"),
        ({"y": [0, 1, [1, 2], 0, 1]}, r"y\[2\] must be one label or 3, one for each node, got sha"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"texts": "dook"}, "texts must be a sequence of one or more texts, got 'dook'"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, model: PreTrainedModel, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        dataset(tmp_path, model, **settings)
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path, model: PreTrainedModel) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        dataset(tmp_path / "file", model)
