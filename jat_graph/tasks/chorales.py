"""Bach's chorales: four voices as one sequence of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jat_graph.tasks.language import LanguageModelTask
from jat_graph.tasks.sources import find_file, plain_or_gzipped, read_json

if TYPE_CHECKING:
    from datasets import Dataset

Chorale: TypeAlias = list[tuple[int, ...]]

NUM_VOICES = 4
NUM_PITCHES = 128  # MIDI's; each is its own token
REST = NUM_PITCHES
START = NUM_PITCHES + 1
VOCABULARY_SIZE = NUM_PITCHES + 2

_FILE_SPLITS = {"train": "train", "validation": "valid", "test": "test"}


def chorale_to_tokens(steps: Iterable[Sequence[int]]) -> list[int]:
    """Write the voices of a chorale one after the other, step by step.

    The first token is :data:`START`; then each time step has four: its pitches in the order they
    are given, soprano, alto, tenor and bass where all sing, and :data:`REST` for each that is
    missing. A note that is held is said again at every step, as in the paper.

    Args:
        steps: For each time step up to four MIDI pitches, 0 to 127.

    Returns:
        Token numbers, one and four for each step.

    Raises:
        ValueError: If a step has more than four pitches, or a pitch is none of MIDI's.

    Reference:
        Huang et al., *Music Transformer: Generating Music with Long-Term Structure*, ICLR 2019,
        section 4.1.
    """
    tokens = [START]
    for place, step in enumerate(steps):
        if len(step) > NUM_VOICES:
            raise ValueError(f"step {place} must have at most {NUM_VOICES} pitches, got {step}")
        for pitch in step:
            if not (0 <= pitch < NUM_PITCHES and pitch == int(pitch)):
                raise ValueError(f"step {place} must have pitches from 0 to 127, got {pitch}")
        tokens += [*(int(pitch) for pitch in step), *[REST] * (NUM_VOICES - len(step))]
    return tokens


def tokens_to_chorale(tokens: Sequence[int]) -> Chorale:
    """Read the voices back: the inverse of :func:`chorale_to_tokens`.

    Args:
        tokens: Token numbers; a leading :data:`START` and a last step that is not whole are left
            out, so that any beginning of a chorale can be read.

    Returns:
        For each time step the pitches that sound.

    Raises:
        ValueError: If a token is no pitch and no rest.
    """
    notes = [*tokens[1:]] if tokens and tokens[0] == START else [*tokens]
    for place, token in enumerate(notes):
        if not 0 <= token <= REST:
            raise ValueError(f"token {place} must be a pitch or a rest, 0 to {REST}, got {token}")
    whole = len(notes) - len(notes) % NUM_VOICES
    return [
        tuple(token for token in notes[start : start + NUM_VOICES] if token != REST)
        for start in range(0, whole, NUM_VOICES)
    ]


@dataclass(frozen=True, kw_only=True)
class ChoralesTask(LanguageModelTask):
    """Say the next note of a chorale by Bach; see :func:`chorale_to_tokens`.

    The splits are the file's: 229, 76 and 77 chorales. In sixteenths a chorale has up to 640 steps,
    in quarters up to 160; the latter name the pitches of a step from low to high, once each.

    Args:
        resolution: ``"16th"`` or ``"quarter"``, the length of a step. (default: 16th)

    Reference:
        Boulanger-Lewandowski, Bengio and Vincent, *Modeling Temporal Dependencies in
        High-Dimensional Sequences*, ICML 2012.
    """

    name: str = "chorales"
    splits: tuple[str, ...] = tuple(_FILE_SPLITS)
    other_metrics: tuple[str, ...] = ("bits_per_token",)
    vocabulary_size: int | None = VOCABULARY_SIZE
    resolution: str = "16th"

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the file of the resolution."""
        from datasets import Dataset

        names = plain_or_gzipped(f"jsb-chorales-{self.resolution}.json")
        homes = ("jsb_chorales", "JSB-Chorales-dataset")
        path = find_file(data_dir, self.name, homes, names)
        content = read_json(path)
        return {
            split: Dataset.from_dict({"tokens": _read_split(path, content, _FILE_SPLITS[split])})
            for split in splits
        }


def _read_split(path: Path, content: Any, split: str) -> list[list[int]]:
    """Encode the chorales of a split."""
    chorales = content.get(split) if isinstance(content, dict) else None
    if not isinstance(chorales, list) or not chorales:
        raise ValueError(f"{path} must have a list of chorales named {split!r}, got none")
    return [
        _encode(f"{path}, chorale {number} of {split!r}", chorale)
        for number, chorale in enumerate(chorales)
    ]


def _encode(place: str, chorale: Any) -> list[int]:
    try:
        tokens = chorale_to_tokens(chorale)
    except TypeError:
        raise ValueError(f"{place} must be a list of steps, each a list of pitches") from None
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    if len(tokens) == 1:
        raise ValueError(f"{place} must have steps, got none")
    return tokens
