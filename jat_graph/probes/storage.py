"""What a model makes of many sentences, on disk: a row of numbers for each word or pair.

Files are NumPy's, mapped into memory, and lie in a folder named after what made them; a run that
was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from jat_graph.data.storage import digest, model_digest
from jat_graph.files import read_object, write_text
from jat_graph.hf.adapter import find_attachment
from jat_graph.probes.words import WordPlan, WordReader, WordReading, Words
from jat_graph.progress import watched

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VERSION = 1  # of what is written, and how it is made
ROWS_FILE, PROGRESS_FILE = "rows.npy", "progress.json"
SAVE_EVERY = 20  # batches: what is lost when a run stops

Floats: TypeAlias = NDArray[np.float32]
RowsOf: TypeAlias = Callable[[WordReading], Floats]  # of one sentence: [P, n, …]


@dataclass(frozen=True)
class Rows:
    """The rows of all sentences, one after the other.

    Args:
        values: Mapped from a file, ``[P, N, …]``: P parts, as layers are, of N rows each.
        starts: Where the rows of each sentence begin, and where the last ones end.
        left_out: Sentences that the model could not read whole, whose rows are 0.
        home: Their folder, which is named after what made them.
    """

    values: Floats
    starts: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    home: Path = Path()

    def of(self, row: int) -> Floats:  # [P, n, …]
        """The rows of one sentence."""
        found: Floats = self.values[:, self.starts[row] : self.starts[row + 1]]
        return found


def stream_rows(
    folder: str | Path,
    reader: WordReader,
    sentences: Words,
    rows_of: RowsOf,
    counts: Sequence[int],
    shape: tuple[int, ...],
    settings: Mapping[str, Any],
) -> Rows:
    """Read sentences once, and keep some rows of each; the same call finds them again.

    ``rows_of`` a sentence are as many as ``counts`` says, of what it depends on in ``settings``;
    ``shape`` is that of the whole without its rows, ``(P, …)``.
    """
    plan = reader.plan(sentences)
    starts = tuple(accumulate(counts, initial=0))
    kept = Rows(np.empty(0, np.float32), starts, plan.left_out)
    own = _settings(reader, sentences, counts, settings)
    home = Path(folder) / digest(own)[:16]
    home.mkdir(parents=True, exist_ok=True)
    path, progress = home / ROWS_FILE, home / PROGRESS_FILE
    whole = shape[0], starts[-1], *shape[1:]
    done = _done(home, whole) if progress.exists() else 0
    if not done:
        np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=whole)
    if done < len(plan.batches):
        _fill(path, progress, own, kept, _watched(reader, plan, done), rows_of, done)
    return Rows(np.load(path, mmap_mode="r", allow_pickle=False), starts, plan.left_out, home)


def stream_states(
    folder: str | Path,
    reader: WordReader,
    sentences: Words,
    keep: Sequence[Sequence[int]] | None = None,
) -> Rows:  # values [layers + 1, N, D]
    """Keep the states of words after each layer: of all words, or of the places in ``keep``."""
    depth, width = reader.model.config.num_hidden_layers + 1, reader.model.config.hidden_size

    def rows_of(reading: WordReading) -> Floats:
        states: Floats = reading.states.numpy()
        return states if keep is None else states[:, list(keep[reading.row])]

    counts = [len(places) for places in (sentences if keep is None else keep)]
    chosen = None if keep is None else [list(places) for places in keep]
    settings = {"rows": "states", "keep": chosen}
    return stream_rows(folder, reader, sentences, rows_of, counts, (depth, width), settings)


def _done(home: Path, shape: tuple[int, ...]) -> int:
    """How many batches are in the rows, which must be there whole."""
    done = read_object(home / PROGRESS_FILE, "progress file").get("batches")
    try:
        found = np.load(home / ROWS_FILE, mmap_mode="r", allow_pickle=False).shape
    except (OSError, ValueError) as error:
        raise ValueError(f"{home} is damaged, delete it: {error}") from None
    if not isinstance(done, int) or found != shape:
        raise ValueError(f"{home} is damaged, delete it: {done!r} batches in rows {list(found)}")
    return done


def _watched(
    reader: WordReader, plan: WordPlan, done: int
) -> Iterable[tuple[int, list[WordReading]]]:
    left = len(plan.batches) - done
    return enumerate(watched(reader.read(plan, done), "Reading sentences", left), start=done + 1)


def _fill(
    path: Path,
    progress: Path,
    settings: Mapping[str, Any],
    kept: Rows,
    batches: Iterable[tuple[int, list[WordReading]]],
    rows_of: RowsOf,
    done: int,
) -> None:
    """Write the rows of batches, and now and then how many are written."""
    values = np.lib.format.open_memmap(path, mode="r+")
    for done, readings in batches:
        for reading in readings:
            values[:, kept.starts[reading.row] : kept.starts[reading.row + 1]] = rows_of(reading)
        if done % SAVE_EVERY == 0:
            _save(values, progress, settings, done)
    _save(values, progress, settings, done)


def _save(
    values: np.memmap[Any, Any], progress: Path, settings: Mapping[str, Any], done: int
) -> None:
    values.flush()
    write_text(progress, json.dumps({"batches": done, **settings}, indent=1) + "\n")


def _settings(
    reader: WordReader, sentences: Words, counts: Sequence[int], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """What the rows depend on."""
    return {
        "version": VERSION,
        "model": model_digest(reader.model),
        "heads_of_ours": _jumps(reader.model),
        "maps": reader.maps,
        "batch_size": reader.batch_size,
        "sentences": digest([list(words) for words in sentences]),
        "counts": digest(list(counts)),
        "rows_of": digest(dict(settings)),
    }


def _jumps(model: PreTrainedModel) -> bool:
    attachment = find_attachment(model)
    return attachment is not None and attachment.enabled
