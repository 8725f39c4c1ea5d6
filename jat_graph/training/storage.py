"""What a run leaves in its folder: checked before work starts, whole or not there at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.files import read_object, write_text

if TYPE_CHECKING:
    from jat_graph.training.options import TrainingOptions

RESULTS_FILE = "results.json"
ANSWERS_FILE = "answers.json"
RUN_FILE = "run.json"
CALIBRATED_FILE = "calibrated.json"
MODEL_FOLDER = "model"
CHECKPOINT_FOLDER = "checkpoints"
LOG_FOLDER = "tensorboard"

# The Trainer writes this file of a checkpoint last, so one without it was cut off.
_LAST_FILE = "trainer_state.json"


def run_folder(options: TrainingOptions) -> Path:
    """Where a run is written, by its absolute path."""
    return _absolute(options.output_dir)


def _absolute(folder: str | Path) -> Path:
    return Path(folder).expanduser().resolve()


def prepare_folder(folder: str | Path) -> Path:
    """A folder's absolute path; it is there, and can be written to, before any work is done."""
    path = _absolute(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        raise OSError(
            f"output_dir {path} must be a folder one can write to: {reason(error)}"
        ) from None
    return path


@contextmanager
def making_folder(folder: str | Path) -> Iterator[Path]:
    """A prepared folder; what work that fails leaves empty of it is taken away again."""
    path = _absolute(folder)
    new = [place for place in (path, *path.parents) if not place.exists()]
    try:
        yield prepare_folder(path)
    except BaseException:
        for place in new:
            with suppress(OSError):  # which is that it is not empty
                place.rmdir()
        raise


def reason(error: Exception) -> str:
    """An error's first line; of the system's errors its own words, without the path."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).strip().splitlines()[0]


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file that appears whole or not at all; NaN is never written."""
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    try:
        write_text(path, text)
    except OSError as error:
        raise OSError(f"cannot write {path}: {reason(error)}") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a file that :func:`write_json` wrote; None if there is no such file."""
    try:
        return read_object(path, "file")
    except (FileNotFoundError, NotADirectoryError):
        return None


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first setting that is another one, with its old value and the new one, if any is."""
    found, asked = dict(_flat(old)), dict(_flat(new))
    for name in sorted({*found, *asked}):
        if found.get(name) != asked.get(name):
            return f"{name}={found.get(name)!r}, not {asked.get(name)!r}"
    return None


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of nested tables, their names joined by dots."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def check_unused(options: TrainingOptions) -> None:
    """Refuse a folder that holds a run, unless it is to go on."""
    folder = run_folder(options)
    if not options.resume and any((folder / name).exists() for name in (RESULTS_FILE, RUN_FILE)):
        raise ValueError(
            f"output_dir {folder} holds a run already: resume it, or name another folder"
        )


def refuse_single_run(options: TrainingOptions) -> None:
    """Refuse a folder that holds one run, which is no comparison."""
    folder = run_folder(options)
    found = read_json(folder / RESULTS_FILE)
    if found is not None and "arms" not in found:
        raise ValueError(f"output_dir {folder} holds a single run: name another folder")


def read_answers(folder: Path) -> dict[str, dict[str, list[Any]]]:
    """What a run said of each example of its dev sets, beside what is right, if it kept that."""
    path = folder / ANSWERS_FILE
    answers = read_json(path) or {}
    check_answers(answers, f"{path}: ")
    return answers


def check_answers(answers: Mapping[str, Any], where: str = "") -> None:
    """Refuse answers without what is right, or for other examples."""
    for split, both in answers.items():
        sides = both if isinstance(both, Mapping) else {}
        counts = {name: len(side) for name, side in sides.items() if isinstance(side, list | tuple)}
        if counts.keys() != {"said", "right"} or len({*counts.values()}) != 1:
            wanted = "said and right, equally many"
            raise ValueError(f"{where}answers.{split} must have {wanted}, got {counts or both!r}")


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Give a folder beside ``folder`` to write to, and rename it if that went well."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with one_line_errors(folder):
            yield temporary
            temporary.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def one_line_errors(target: Path) -> Iterator[None]:
    """Turn whatever a failed write raises into one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:  # torch.save raises RuntimeError
        raise OSError(f"cannot write {target}: {reason(error)}") from error


def last_checkpoint(folder: Path, processes: int = 1) -> Path | None:
    """The newest whole checkpoint; those that a kill cut off are deleted."""
    found = sorted(folder.glob("checkpoint-*"), key=steps_in)
    for checkpoint in reversed(found):
        if _is_whole(checkpoint, processes):
            return checkpoint
        shutil.rmtree(checkpoint, ignore_errors=True)
    return None


def steps_in(checkpoint: Path) -> int:
    """The steps that were taken before a checkpoint."""
    return int(checkpoint.name.split("-")[1])


def _is_whole(checkpoint: Path, processes: int) -> bool:
    """Whether all has been written; of several processes each writes its random state."""
    states = [checkpoint / f"rng_state_{index}.pth" for index in range(processes)]
    if processes > 1 and not all(state.is_file() for state in states):
        return False
    try:
        return read_json(checkpoint / _LAST_FILE) is not None
    except ValueError:
        return False
