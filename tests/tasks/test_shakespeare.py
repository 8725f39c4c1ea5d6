import gzip
from pathlib import Path

import pytest

from jat_graph.tasks import get_task

TASK = get_task("tinyshakespeare")


def test_the_split_is_the_published_one(data_dir: Path) -> None:
    splits = TASK.load(data_dir)
    assert {name: split.column_names for name, split in splits.items()} == {
        "train": ["text"],
        "validation": ["text"],
    }
    train, validation = splits["train"]["text"], splits["validation"]["text"]
    assert [len(text) for text in train] == [1_003_854]
    assert [len(text) for text in validation] == [111_540]
    original = gzip.decompress((data_dir / "lm" / "tinyshakespeare" / "input.txt.gz").read_bytes())
    assert train[0] + validation[0] == original.decode()
    assert len(set(original.decode())) == 65


@pytest.mark.parametrize("folder", ["lm", "lm/tinyshakespeare"])
def test_each_folder_on_the_way_will_do(data_dir: Path, folder: str) -> None:
    loaded = TASK.load(data_dir / folder, ["validation"])
    assert list(loaded) == ["validation"]
    assert loaded["validation"].to_list() == TASK.load(data_dir)["validation"].to_list()


def test_wrong_inputs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task tinyshakespeare cannot be loaded by name"):
        TASK.load(None)
    with pytest.raises(FileNotFoundError, match=r"needs input.txt or input.txt.gz in"):
        TASK.load(tmp_path)
    with pytest.raises(ValueError, match="split of task tinyshakespeare must be one of"):
        TASK.load(tmp_path, ["test"])
    (tmp_path / "input.txt.gz").write_bytes(gzip.compress(b"To be, or not to be")[:-9])
    with pytest.raises(ValueError, match=r"input.txt.gz is cut off or damaged"):
        TASK.load(tmp_path)
