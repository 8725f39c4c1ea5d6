"""Questions about tables: drawing them, their graph, and training on them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from examples.sweeps.tables import (
    ANSWERS,
    ASKED,
    METRICS,
    NAMES,
    NUMBER,
    SIZES,
    VARIANTS,
    Reader,
    draw_tables,
    edges_of,
    fit,
)
from tests.examples.test_sweep import run_small, scores


def test_answers_are_those_that_the_table_gives() -> None:
    tables = draw_tables(200, 5, torch.Generator())  # which begins at the same number each time
    places = [*zip(*(x.tolist() for x in tables[1:4]), strict=True)]
    each = (x.tolist() for x in (tables.words, tables.answers, tables.names))
    for words, answers, named in zip(*each, strict=True):
        own = [(place, word) for place, (word, *rest) in zip(places, words, strict=True)]
        names = {word: row or column for (role, row, column), word in own if 0 < role < NUMBER}
        at = {(row, column): word - 4 for (role, row, column), word in own if role == NUMBER}
        assert [[names[x + 14] for x in pair] for pair in named] == [[*place] for place in at]
        assert (len(names), len(at)) == (10, 25) and not any(any(x[1:]) for x in words[ASKED:])
        for (kind, one, two, three), answer in zip(words[:ASKED], answers, strict=True):
            first = at[names[one], names[three]]
            then = at[names[two], names[three]] if kind == 2 else 0
            right = first + (at[names[one], names[two]] if kind == 3 else 0)
            right = ANSWERS - 2 + (then > first) - (then < first) if kind == 2 else right
            assert answer == right and len({one, two, three}) == 3 and (two == 0) == (kind == 1)
    assert tables.answers.unique().tolist() == [*range(ANSWERS)]


def test_numbers_are_joined_with_names_and_numbers_or_dealt_to_others() -> None:
    tables = draw_tables(20, 3, torch.Generator())
    places = [*zip(*map(Tensor.tolist, tables[2:4]), strict=True)]
    right, dealt = (edges_of(tables, graph, torch.Generator()) for graph in ("table", "random"))
    for kind, line in enumerate((0, 1, 0, 1)):
        for i, one in enumerate(places):
            joined = [x for x in places[ASKED:] if all(one) and x[line] == one[line] and x != one]
            joined = [x for x in joined if (x[1 - line] > 0) == (kind > 1)]
            for own in right[:, kind, i]:
                assert [places[j] for j in own.nonzero()[:, 0]] == joined
    assert all(torch.equal(right.sum(axis), dealt.sum(axis)) for axis in (-1, -2))
    assert 0.05 < (right & dealt).sum() / right.sum() < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_begin_alike_and_learn(variant: str) -> None:
    tables, models = draw_tables(4, 3, torch.Generator()), []
    for name in ("line", variant):
        torch.manual_seed(0)
        models.append(Reader(name).eval())
    said, names = models[1](tables, torch.Generator())
    assert names.shape == (4, 9, NAMES) and said.shape == (4, ASKED, ANSWERS)
    alike = torch.allclose(said, models[0](tables, torch.Generator())[0], atol=1e-4)
    assert alike != (variant == "cells" or variant.endswith("pairs"))
    words = tables.words.clone()
    words[:, 1:ASKED] = words[:, 1:ASKED].roll(1, 0)  # all questions but one are others
    again, _ = models[1](tables._replace(words=words), torch.Generator())
    torch.testing.assert_close(again[:, 0], said[:, 0])
    assert not torch.allclose(again[:, 1:], said[:, 1:], atol=1e-3)
    losses = fit(models[1], 4, 20, 0)
    assert losses[-1] < losses[0] - 0.2
    bare = tables._replace(rows=torch.zeros_like(tables.rows))
    named = [models[1].eval()(one, torch.Generator())[1] for one in (tables, bare)]
    assert torch.equal(*named) == (variant == "line")


@pytest.mark.slow
def test_a_sweep_tests_on_tables_of_each_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("line", "table-bias", "cells")
    small = {
        "variants": [{"name": name} for name in names],
        "pairs": [["table-bias", "line"], ["table-bias", "cells"]],
        "options": {"steps": 10, "tests": 3},
    }
    results, text = run_small("tables", tmp_path, capsys, seeds=2, **small)
    for own in scores(results).values():
        assert {split: {*of} for split, of in own.items()} == {
            f"rows {size}": {*METRICS} for size in SIZES
        }
    found = [
        [record.scores["rows 12"]["all"] for record in results.of("4 × 4", name).values()]
        for name in ("table-bias", "cells")
    ]
    change = 50 * (sum(found[0]) - sum(found[1]))
    verdict = next(line for line in text.splitlines()[::-1] if "table-bias against cells" in line)
    assert "rows 12" in verdict and f"{change:+.1f}" in verdict
