"""Questions about tables: drawing them, their graph, and training on them."""

import json
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from torch import Tensor

from examples import table_questions
from examples.table_questions import MEASURES, SIZES, VARIANTS, Reader, fit
from examples.tasks.tables import (
    ANSWERS,
    ASKED,
    LARGEST,
    NAMES,
    NUMBER,
    Tables,
    draw_tables,
    edges_of,
)


def seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def test_answers_are_those_that_the_table_gives() -> None:
    tables, seen = draw_tables(200, 5, seeded()), set()
    places = [*zip(*(x.tolist() for x in tables[1:4]), strict=True)]
    each = (x.tolist() for x in (tables.words, tables.answers, tables.names))
    for words, answers, named in zip(*each, strict=True):
        own = [(place, word) for place, (word, *rest) in zip(places, words, strict=True)]
        names = {word: row or column for (role, row, column), word in own if 0 < role < NUMBER}
        at = {(row, column): word - 4 for (role, row, column), word in own if role == NUMBER}
        assert [[names[x + 14] for x in pair] for pair in named] == [[*place] for place in at]
        assert (
            len(names) == 10 and len(at) == 25 and not any(map(any, [x[1:] for x in words[ASKED:]]))
        )
        for (kind, one, two, three), answer in zip(words[:ASKED], answers, strict=True):
            first = at[names[one], names[three]]
            if kind == 2:
                second = at[names[two], names[three]]
                right = ANSWERS - 2 + (second > first) - (second < first)
            else:
                right = first + (at[names[one], names[two]] if kind == 3 else 0)
            assert answer == right and len({one, two, three}) == 3 and (two == 0) == (kind == 1)
            seen.add((kind, answer))
    assert len(seen) == 10 + 3 + 19
    assert draw_tables(1, LARGEST, seeded()).rows.max() == LARGEST


def test_numbers_are_joined_with_their_names_and_with_numbers_beside_them() -> None:
    tables = draw_tables(3, 2, seeded())
    at = {place: i for i, place in enumerate(zip(*map(Tensor.tolist, tables[2:4]), strict=True))}
    cells = [(r, c) for r in (1, 2) for c in (1, 2)]
    drawn = (
        {(at[r, c], at[r, 0]) for r, c in cells},
        {(at[r, c], at[0, c]) for r, c in cells},
        {(at[r, c], at[r, 3 - c]) for r, c in cells},
        {(at[r, c], at[3 - r, c]) for r, c in cells},
    )
    for own in edges_of(tables, "table", seeded()):
        assert [{*map(tuple, kind.nonzero().tolist())} for kind in own] == [*drawn]


def test_a_random_graph_keeps_how_many_edges_a_token_has() -> None:
    tables = draw_tables(20, 4, seeded())
    right, dealt = (edges_of(tables, graph, seeded()) for graph in ("table", "random"))
    for axis in (-1, -2):
        assert torch.equal(right.sum(axis), dealt.sum(axis))
    assert 0.05 < (right & dealt).sum() / right.sum() < 0.5
    assert bool((dealt != right).flatten(1).any(-1).all())


def asked_otherwise(tables: Tables) -> Tables:
    """Put other questions in the place of all but the first."""
    words = tables.words.clone()
    words[:, 1:ASKED] = words[:, 1:ASKED].roll(1, 0)
    return tables._replace(words=words)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_begin_alike_and_learn(variant: str) -> None:
    tables, models = draw_tables(4, 3, seeded()), []
    for name in ("line", variant):
        torch.manual_seed(0)
        models.append(Reader(name).eval())
    plain, model = models
    said, names = model(tables, seeded())
    assert names.shape == (4, 9, NAMES) and said.shape == (4, ASKED, ANSWERS)
    other = variant == "cells" or variant.endswith("pairs")
    assert torch.allclose(said, plain(tables, seeded())[0], atol=1e-4) != other
    again, _ = model(asked_otherwise(tables), seeded())
    torch.testing.assert_close(again[:, 0], said[:, 0])  # questions are told apart
    assert not torch.allclose(again[:, 1:], said[:, 1:], atol=1e-3)
    losses = fit(model, 20, 0)
    assert len(losses) == 10 and losses[-1] < losses[0] - 0.2
    bare = tables._replace(rows=torch.zeros_like(tables.rows))
    same = torch.equal(model.eval()(bare, seeded())[1], model(tables, seeded())[1])
    assert same == (variant == "line")


def test_runs_go_on_where_they_were(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, picture = tmp_path / "runs.jsonl", tmp_path / "runs.png"

    def run(*words: str) -> str:
        own = ["--output", str(file), "--steps", "10", "--tests", "3", *words]
        monkeypatch.setattr(sys, "argv", ["table_questions", *own])
        table_questions.main()
        return capsys.readouterr().out

    run("--seeds", "1", "--variants", "line", "cells")
    lines = file.read_text().splitlines()
    assert len(lines) == 2 * len(SIZES)
    run("--seeds", "2", "--plot", str(picture))
    rows = [*map(json.loads, file.read_text().splitlines())]
    assert file.read_text().splitlines()[: len(lines)] == lines
    assert len(rows) == 2 * len(SIZES) * len(VARIANTS)
    assert all(0 <= row[name] <= 1 for row in rows for name in MEASURES)
    table = run("--seeds", "2")
    assert "table-bias less random-bias" in table and "±" in table
    assert imread(picture).std() > 0.05 and len(file.read_text().splitlines()) == len(rows)
    for words, wrong in ((["--variants", "tree"], "variants must be"), (["--tests", "0"], "tests")):
        with pytest.raises(SystemExit, match=wrong):
            run(*words)
    file.write_text('{"seed": 0}\n')
    with pytest.raises(SystemExit, match="must have the layout of runs of table_questions"):
        run()
