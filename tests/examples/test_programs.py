"""Wrong variables in programs: reading, corrupting, and training on them."""

import optparse
import random
import shlex
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import torch

from examples.sweeps.programs import WAYS, Finder, fit, loss_of, make_batch
from examples.tasks import programs
from examples.tasks.programs import corrupt, edges_of, functions_of, pieces, rewired
from tests.examples.test_sweep import run_small, scores

TOTAL = b"def total(items, start):\n  result = start  # what is added to\n  for item in items:\n"
TOTAL += b"    result = result + item\n  return result\n"
HARDER = b"def outer(a, b):\n    return lambda c: a\n\ndef told(a, b):\n    return f'{a}'\n"
FILES = [Path(module.__file__) for module in (optparse, shlex, textwrap)]
LIBRARY = [program for file in FILES for program in functions_of(file.read_bytes())]


def test_tokens_and_edges_are_those_drawn_by_hand() -> None:
    (total,) = functions_of(TOTAL + HARDER)
    assert [*functions_of(TOTAL.replace(b"result = start", b"result = \xff"))] == []
    words = "<start> def total ( items , start ) : <newline> <indent> result = start <newline> "
    words += "for item in items : <newline> <indent> result = result + item <newline> <dedent> "
    assert total.tokens == (*words.split(), "return", "result")
    assert (total.reads, total.binds) == ((13, 18, 24, 26, 30), (4, 6, 11, 16, 22))
    last, computed, tree, same = map(set, edges_of(total, "program", random.Random(0)))
    own = {(4, 18), (6, 13), (16, 26)}
    assert last == own | {(11, 22), (22, 24), (24, 30)}
    assert computed == {(11, 13), (16, 18), (22, 24), (22, 26)}
    statements = {(1, 4), (1, 6), (1, 11), (1, 15), (1, 29), (15, 22)}
    assert tree == statements | {(11, 13), (15, 16), (15, 18), (22, 24), (24, 26), (29, 30)}
    assert same == own | {(11, 22), (11, 24), (11, 30), (22, 24), (22, 30), (24, 30)}


def test_an_attribute_is_told_by_its_name_and_what_a_comprehension_binds_is_no_variable() -> None:
    (program,) = functions_of(b"def f(self, a, b):\n  self.a.put(b)\n  return [i for i in (a, b)]")
    words = program.tokens
    tree = {(words[x], words[y]) for x, y in program.tree}
    assert {("self", "put"), ("a", "put"), ("put", "b"), ("self", "a")} <= tree
    assert {words[place] for place in (*program.reads, *program.binds)} == {"a", "b"}


def test_one_use_is_wrong_and_edges_know_no_better() -> None:
    (total,) = functions_of(TOTAL)
    draw, seen = random.Random(0), set()
    for _ in range(200):
        wrong = corrupt(total, draw)
        differ = [i for i, word in enumerate(wrong.tokens) if word != total.tokens[i]]
        assert differ == [wrong.wrong] and wrong.right == total.tokens[wrong.wrong]
        seen.add((wrong.wrong, wrong.tokens[wrong.wrong]))
    early = {(13, "items"), (18, "start"), (18, "result")}
    later = {(i, x) for i in (24, 26, 30) for x in ("items", "start", "item", "result")}
    assert seen == (early | later) - {(24, "result"), (26, "item"), (30, "result")}
    wrong = total._replace(tokens=(*total.tokens[:13], "items", *total.tokens[14:]))
    last, _, _, same = map(set, edges_of(wrong, "program", draw))
    assert {(4, 13), (13, 18)} <= last and (4, 18) not in last and (6, 13) not in same


def test_a_random_graph_keeps_how_many_edges_a_token_has() -> None:
    draw, moved = random.Random(0), 0
    for program in LIBRARY[:40]:
        for edges in edges_of(program, "program", draw):
            dealt = rewired(edges, draw)
            degrees = (Counter(x for pair in own for x in pair) for own in (edges, dealt))
            assert len({frozenset(own.items()) for own in degrees}) == 1
            assert all(x < y for x, y in dealt)
            moved += len(dealt - {*edges})
    assert moved > 500
    near = edges_of(LIBRARY[0], "nearby", draw)
    assert [{y - x for x, y in own} for own in near] == [{1}, {2}, {3}, {4}]


def test_splits_are_the_same_each_time_and_share_no_module(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    for name in (*"abcdefgh", "site-packages/x"):
        (tmp_path / f"{name}.py").write_bytes(TOTAL.replace(b"items", name[-1:].encode()) * 2)
    splits = [programs.read_functions(split, tmp_path) for split in programs.SPLITS]
    names = [[program.tokens[4] for program in split] for split in splits]
    assert sorted(names[0] + names[1]) == [*"abcdefgh"] and all(names)
    whole, *parts = pieces("parseHTTP_error")
    assert parts == [pieces(f"part {x}")[0] for x in ("parse", "http", "error")] and whole > 0


@pytest.mark.slow
@pytest.mark.parametrize("way", ["", *WAYS])
def test_the_loss_goes_down_and_begins_where_it_does_without_a_graph(way: str) -> None:
    torch.manual_seed(0)
    plain = Finder().eval()
    torch.manual_seed(0)
    model = Finder(way).eval()
    draw = random.Random(0)
    batch = make_batch([corrupt(program, draw) for program in LIBRARY[:8]], "program", draw)
    assert bool((batch.right & (batch.roles > 0)).any(-1).all())
    assert torch.allclose(model(batch), plain(batch), atol=1e-5) == (way != "pairs")
    losses = fit(model, LIBRARY[:4], "program", 40, 0)
    assert losses[-1] < losses[0] - 0.3
    assert bool(loss_of(model.eval()(batch), batch).isfinite())
    bare = batch._replace(edges=torch.zeros_like(batch.edges))
    assert torch.equal(model(batch), model(bare)) == (way == "")


@pytest.mark.slow
def test_a_sweep_trains_on_as_many_functions_as_its_tasks_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "read_functions", lambda split: LIBRARY)
    longer = {"name": "none (4 steps)", "options": {"steps": 4}}
    small = {
        "tasks": ["4 functions", "8 functions"],
        "variants": [{"name": "none"}, {"name": "random-bias"}, {"name": "program-bias"}, longer],
        "pairs": [["program-bias", "none"], ["program-bias", "random-bias"]],
        "options": {"steps": 2, "tests": 6},
    }
    results, text = run_small("programs", tmp_path, capsys, seeds=2, **small)
    assert len(results.records) == 16
    assert all(0 <= x <= 1 for own in scores(results).values() for x in own["test"].values())
    losses = {record.variant: len(record.content["losses"]) for record in results.records}
    assert losses == {name: 2 + 2 * ("(" in name) for name in losses}
    found = [
        [row.content["scores"]["test"]["told"] for row in results.of("8 functions", name).values()]
        for name in ("program-bias", "random-bias")
    ]
    change = 50 * (sum(found[0]) - sum(found[1]))
    verdict = next(line for line in text.splitlines()[::-1] if "8 functions, told" in line)
    assert "program-bias against random-bias" in verdict and f"{change:+.1f} |" in verdict
    for words in ({"options": {"tests": 1}}, {"tasks": ["9999 functions"]}):
        with pytest.raises(ValueError, match="must be 2 to "):
            run_small("programs", tmp_path / "no", capsys, **(small | words))
