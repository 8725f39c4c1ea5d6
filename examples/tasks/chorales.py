"""Bach's chorales: four voices as one sequence of tokens.

Reference:
    Huang et al., *Music Transformer*, ICLR 2019, section 4.1, for the sequence;
    Boulanger-Lewandowski et al., *Modeling Temporal Dependencies*, ICML 2012, for the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from datasets import Dataset

from examples.tasks.base import Splits, Task, find_file, read_text, reading

NUM_VOICES = 4
NUM_PITCHES = 128  # MIDI's; each is its own token
REST = NUM_PITCHES
START = NUM_PITCHES + 1
VOCABULARY_SIZE = NUM_PITCHES + 2


def chorale_to_tokens(steps: Iterable[Sequence[int]]) -> list[int]:
    """Write the voices of a chorale one after the other, step by step.

    The first token is :data:`START`; then each time step has four: its pitches in the order they
    are given, soprano, alto, tenor and bass where all sing, and :data:`REST` for each that is
    missing. A note that is held is said again at every step.
    """
    tokens = [START]
    for number, step in enumerate(steps):
        if len(step) > NUM_VOICES:
            raise ValueError(f"step {number} must have at most {NUM_VOICES} pitches, got {step}")
        for pitch in step:
            if not (0 <= pitch < NUM_PITCHES and pitch == int(pitch)):
                raise ValueError(f"step {number} must have pitches from 0 to 127, got {pitch}")
        tokens += [*(int(pitch) for pitch in step), *[REST] * (NUM_VOICES - len(step))]
    return tokens


def tokens_to_chorale(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """Read the voices of a chorale, or of any beginning of one, back."""
    notes = [*tokens[1:]] if tokens and tokens[0] == START else [*tokens]
    for number, token in enumerate(notes):
        if not 0 <= token <= REST:
            raise ValueError(f"token {number} must be a pitch or a rest, 0 to {REST}, got {token}")
    whole = len(notes) - len(notes) % NUM_VOICES
    return [
        tuple(token for token in notes[start : start + NUM_VOICES] if token != REST)
        for start in range(0, whole, NUM_VOICES)
    ]


def read_chorales(data_dir: Path | None, names: Sequence[str], *, resolution: str) -> Splits:
    """Read 229, 76 and 77 chorales, in steps of a sixteenth or a quarter."""
    path = find_file(data_dir, "jsb_chorales", f"jsb-chorales-{resolution}.json")
    with reading(path, "chorales, lists of steps of pitches"):
        content = json.loads(read_text(path))
        tokens = {n: [*map(chorale_to_tokens, content[n.removesuffix("ation")])] for n in names}
    return {name: Dataset.from_dict({"tokens": own}) for name, own in tokens.items()}


CHORALES = tuple(
    Task(
        name,
        "language_modelling",
        partial(read_chorales, resolution=resolution),
        None,
        ("perplexity", "bits_per_token"),
        ("train", "validation", "test"),
        vocabulary_size=VOCABULARY_SIZE,
    )
    for name, resolution in (("chorales", "16th"), ("choralesquarter", "quarter"))
)
