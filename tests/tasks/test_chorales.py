import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import chorale_to_tokens, get_task, tokens_to_chorale
from jat_graph.tasks.chorales import NUM_VOICES, REST, START, VOCABULARY_SIZE

PITCHES = st.integers(0, 127)
CHORALES = st.lists(st.lists(PITCHES, max_size=NUM_VOICES).map(tuple), max_size=20)


@given(CHORALES)
def test_a_chorale_comes_back_from_its_tokens(chorale: list[tuple[int, ...]]) -> None:
    tokens = chorale_to_tokens(chorale)
    assert len(tokens) == 1 + NUM_VOICES * len(chorale)
    assert all(0 <= token < VOCABULARY_SIZE for token in tokens)
    assert tokens_to_chorale(tokens) == chorale


@given(CHORALES, st.integers(0, 90))
def test_any_beginning_can_be_read(chorale: list[tuple[int, ...]], kept: int) -> None:
    read = tokens_to_chorale(chorale_to_tokens(chorale)[:kept])
    assert read == chorale[: max(0, kept - 1) // NUM_VOICES]


def test_voices_follow_each_other_and_rests_fill_up() -> None:
    assert chorale_to_tokens([[74, 70, 65, 58], [69.0, 54.0], []]) == [
        *(START, 74, 70, 65, 58),
        *(69, 54, REST, REST),
        *(REST, REST, REST, REST),
    ]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ([60, 61, 62, 63, 64], "step 1 must have at most 4 pitches, got [60, 61, 62, 63, 64]"),
        ([128], "step 1 must have pitches from 0 to 127, got 128"),
        ([-1], "step 1 must have pitches from 0 to 127, got -1"),
        ([60.5], "step 1 must have pitches from 0 to 127, got 60.5"),
        ([float("nan")], "step 1 must have pitches from 0 to 127, got nan"),
    ],
)
def test_steps_that_cannot_be_written(step: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        chorale_to_tokens([[60], step])


@pytest.mark.parametrize("token", [START, -1, VOCABULARY_SIZE])
def test_tokens_that_are_no_notes(token: int) -> None:
    with pytest.raises(ValueError, match=f"^token 1 must be a pitch or a rest, .* got {token}$"):
        tokens_to_chorale([START, 60, token])


@pytest.mark.parametrize(("name", "steps"), [("chorales", 640), ("chorales-quarter", 160)])
def test_the_files_chorales_come_back(data_dir: Path, name: str, steps: int) -> None:
    task = get_task(name)
    splits = task.load(data_dir)
    assert {split: len(rows) for split, rows in splits.items()} == {
        "train": 229,
        "validation": 76,
        "test": 77,
    }
    resolution = "quarter" if name.endswith("quarter") else "16th"
    packed = (data_dir / "jsb_chorales" / f"jsb-chorales-{resolution}.json.gz").read_bytes()
    original = json.loads(gzip.decompress(packed))
    for split, rows in splits.items():
        assert rows.column_names == ["tokens"]
        want = [
            [tuple(step) for step in chorale] for chorale in original[split.removesuffix("ation")]
        ]
        assert [tokens_to_chorale(tokens) for tokens in rows["tokens"]] == want
    longest = max(len(tokens) for rows in splits.values() for tokens in rows["tokens"])
    assert longest == 1 + NUM_VOICES * steps
    assert {type(token) for token in splits["test"][0]["tokens"]} == {int}


def test_the_own_folder_reads_the_same(data_dir: Path) -> None:
    inner = get_task("chorales").load(data_dir / "jsb_chorales", ["test"])
    assert list(inner) == ["test"]
    assert inner["test"].to_list() == get_task("chorales").load(data_dir)["test"].to_list()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"train": [[[60]]]}, "must have a list of chorales named 'valid', got none"),
        ({"valid": []}, "must have a list of chorales named 'valid', got none"),
        ([1], "must have a list of chorales named 'valid', got none"),
        ({"valid": [[[60]], []]}, ", chorale 1 of 'valid' must have steps, got none"),
        ({"valid": [[60]]}, ", chorale 0 of 'valid' must be a list of steps, each a list of"),
        ({"valid": [[["c"]]]}, ", chorale 0 of 'valid' must be a list of steps, each a list of"),
        ({"valid": [[[60], [200]]]}, ", chorale 0 of 'valid': step 1 must have pitches from"),
    ],
)
def test_files_that_are_wrong_inside(tmp_path: Path, content: Any, message: str) -> None:
    (tmp_path / "jsb-chorales-16th.json").write_text(json.dumps(content))
    with pytest.raises(ValueError) as caught:
        get_task("chorales").load(tmp_path, ["validation"])
    assert str(caught.value).startswith(f"{tmp_path / 'jsb-chorales-16th.json'}{message}") or (
        str(caught.value).startswith(f"{tmp_path / 'jsb-chorales-16th.json'} {message}")
    )
    assert "\n" not in str(caught.value)


def test_wrong_inputs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task chorales cannot be loaded by name"):
        get_task("chorales").load(None)
    with pytest.raises(FileNotFoundError, match=r"needs jsb-chorales-quarter.json or "):
        get_task("chorales-quarter").load(tmp_path)
    (tmp_path / "jsb-chorales-16th.json").write_text('{"train": [[[60')
    with pytest.raises(ValueError, match=r"16th.json must be JSON, got .* at line 1, column"):
        get_task("chorales").load(tmp_path)
