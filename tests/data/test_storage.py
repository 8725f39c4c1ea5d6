"""Graphs that are written and read back, and digests of models."""

import pickletools
import zipfile
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from jat_graph.data.storage import digest, model_digest, read_graphs, write_graphs
from jat_graph.hf import attach, detach
from tests.hf.models import tiny_config, tiny_model


def graphs() -> list[Data]:
    sizes = [(4, 3), (0, 0), (2, 0), (3, 5)]
    return [
        Data(
            x=torch.randn(nodes, 2),
            edge_index=torch.randint(max(nodes, 1), (2, edges)),
            edge_attr=torch.randn(edges, 3),
            input_ids=torch.arange(nodes),
        )
        for nodes, edges in sizes
    ]


@pytest.mark.parametrize("count", [1, 4])
def test_what_is_written_is_read(tmp_path: Path, count: int) -> None:
    wanted = graphs()[:count]
    write_graphs(tmp_path / "graphs.safetensors", iter(wanted))
    found = read_graphs(tmp_path / "graphs.safetensors")
    assert len(found) == count
    for own, other in zip(found, wanted, strict=True):
        assert set(own.keys()) == set(other.keys())
        assert all(torch.equal(own[name], other[name]) for name in own.keys())


def test_nothing_is_pickled_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "graphs.safetensors"
    write_graphs(path, graphs())
    assert list(tmp_path.iterdir()) == [path] and not zipfile.is_zipfile(path)
    with pytest.raises(ValueError), path.open("rb") as file:
        list(pickletools.genops(file))


def test_a_writer_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def broken():  # type: ignore[no-untyped-def]
        yield graphs()[0]
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_graphs(tmp_path / "graphs.safetensors", broken())
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "graphs.safetensors"
    write_graphs(path, graphs())
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"graphs.safetensors is damaged, delete it: ") as caught:
        read_graphs(path)
    assert "\n" not in str(caught.value)


def test_a_digest_is_of_configuration_and_weights_wherever_they_lie() -> None:
    model, same = tiny_model("bert"), tiny_model("bert")
    same.config._name_or_path = "elsewhere"
    known = model_digest(model)
    assert model_digest(same) == known
    attach(same, tiny_config())
    assert model_digest(same) != known
    assert model_digest(detach(same)) == known
    with torch.no_grad():
        same.embeddings.word_embeddings.weight[3, 2] += 1e-3
    assert model_digest(same) != known
    assert model_digest(tiny_model("bert").bfloat16()) != known
    assert model_digest(tiny_model("bert", hidden_act="relu")) != known


def test_a_digest_is_of_content_not_of_order() -> None:
    assert digest({"a": 1, "b": (2,)}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})
