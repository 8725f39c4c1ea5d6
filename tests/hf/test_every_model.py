"""The table of docs/models_run.md: every model class of transformers that can be built small.

``python -m tests.hf.test_every_model`` writes it anew, as after an update of transformers.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.hf.every_model import Row, model_classes, row_of

TABLE = Path(__file__).resolve().parents[2] / "docs" / "models_run.csv"
FIELDS = ("type", *Row._fields)
CLASSES = model_classes()

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def read_table() -> dict[str, Row]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert tuple(header) == FIELDS
    return {key: Row(*line) for key, *line in lines}


@pytest.mark.parametrize("part", range(16))
def test_models_do_what_the_table_says(part):
    for key, known in list(read_table().items())[part::16]:
        row, rows, reads = row_of(key)
        assert row == known, f"{key}: python -m tests.hf.test_every_model writes the table"
        assert "NO" not in row
        for told in rows:
            if told.name in reads:
                assert reads[told.name] == (told.reads == "cluster heads"), told


def test_the_table_is_of_the_classes_that_there_are():
    known = read_table()
    assert len(known) > 200 and set(known) <= set(CLASSES)
    reading = [row for row in known.values() if "cluster heads" in row.layers]
    assert sum(row.exact == "yes" for row in reading) > 150


def write_table() -> None:
    """Write the table of the transformers that is installed."""
    found = {key: row_of(key)[0] for key in CLASSES}
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows((key, *row) for key, row in sorted(found.items()) if row is not None)


if __name__ == "__main__":
    write_table()
