"""Files and folders that are whole or not there."""

import errno
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError

from jat_graph.training.storage import (
    last_checkpoint,
    one_line_errors,
    prepare_folder,
    read_answers,
    read_json,
    reason,
    replacing_folder,
    write_json,
)


def test_a_folder_is_made_and_left_empty(tmp_path: Path) -> None:
    assert list(prepare_folder(tmp_path / "a" / "b").iterdir()) == []


def test_a_full_disk_is_found_before_work_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("jat_graph.training.storage.tempfile.TemporaryFile", full)
    with pytest.raises(OSError, match="one can write to: No space left on device"):
        prepare_folder(tmp_path)


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
SIDES = st.fixed_dictionaries({}, optional={"said": JSON, "right": JSON, "more": JSON})


@given(st.dictionaries(st.sampled_from(["validation", "test"]), JSON | SIDES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_answers_have_two_sides_or_are_refused_in_one_line(
    tmp_path: Path, answers: dict[str, Any]
) -> None:
    def fits(both: Any) -> bool:
        if not isinstance(both, dict) or both.keys() != {"said", "right"}:
            return False
        sides = list(both.values())
        return all(isinstance(side, list) for side in sides) and len(sides[0]) == len(sides[1])

    write_json(tmp_path / "answers.json", answers)
    if all(map(fits, answers.values())):
        assert read_answers(tmp_path) == answers
        return
    with pytest.raises(ValueError, match=r"must have said and right, equally many") as caught:
        read_answers(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'answers.json'}: answers.")
    assert "\n" not in str(caught.value)


def test_a_run_that_wrote_no_answers_has_none(tmp_path: Path) -> None:
    assert read_answers(tmp_path) == {}


def test_json_round_trip(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": [1, None]})
    assert read_json(tmp_path / "a.json") == {"x": [1, None]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_json_into_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot write .*gone/a.json: No such file"):
        write_json(tmp_path / "gone" / "a.json", {})


@pytest.mark.parametrize(("text", "words"), [("{", "must be JSON"), ("[]", "a JSON object")])
def test_files_that_are_cut_off_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=rf"a\.json {words}|a\.json must be"):
        read_json(tmp_path / "a.json")
    assert read_json(tmp_path / "none.json") is None


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with replacing_folder(tmp_path / "model") as folder:
            (folder / content).write_text("x")
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["new"]


def test_a_folder_that_failed_leaves_the_old_one(tmp_path: Path) -> None:
    with replacing_folder(tmp_path / "model") as folder:
        (folder / "old").write_text("x")
    with (
        pytest.raises(OSError, match=r"cannot write .*model: disk full"),
        replacing_folder(tmp_path / "model") as folder,
    ):
        (folder / "new").write_text("x")
        raise SafetensorError("disk full\nand more")
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]


def test_other_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(KeyError), one_line_errors(tmp_path):
        raise KeyError("x")


def test_reasons_are_one_line() -> None:
    assert reason(OSError(errno.ENOENT, "No such file", "/x")) == "No such file"
    assert reason(ValueError("a\nb")) == "a"
    assert reason(ValueError()) == "ValueError"


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    for step, state in ((9, "{}"), (10, "{}"), (11, '{"cut'), (12, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-9"]
    assert last_checkpoint(tmp_path / "none") is None


def test_every_process_must_have_written_its_part_of_a_checkpoint(tmp_path: Path) -> None:
    for step, states in ((1, 2), (2, 1)):
        checkpoint = tmp_path / f"checkpoint-{step}"
        checkpoint.mkdir()
        (checkpoint / "trainer_state.json").write_text("{}")
        for state in range(states):
            (checkpoint / f"rng_state_{state}.pth").touch()
    assert last_checkpoint(tmp_path, 1) == tmp_path / "checkpoint-2"
    assert last_checkpoint(tmp_path, 2) == tmp_path / "checkpoint-1"
