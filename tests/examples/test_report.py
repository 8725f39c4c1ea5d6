"""Reports: intervals against what is known of them, tables against the pages, figures."""

import json
import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import ttest_1samp, ttest_rel

from examples import report
from examples.sweeps import figures, statistics
from examples.sweeps.definition import read_sweep
from examples.sweeps.rows import MEAN, Row, make_rows, make_verdicts, quoted_rows
from examples.sweeps.store import read_results
from examples.tasks import get_task

DOCS = Path(__file__).resolve().parents[2] / "docs"
RECORDS = DOCS / "experiments"
FILES = sorted(RECORDS.glob("*.jsonl"))
QUICK = ("connections-pretrained", "long-covidqa", "order-top", "partners-five", "pretrained-six")
QUICK += ("runtime", "scratch-listops")
MARKED = [
    pytest.param(p, marks=() if p.stem in QUICK else pytest.mark.slow, id=p.stem) for p in FILES
]
HITS = st.lists(st.integers(0, 1), min_size=20, max_size=20)


def of_hits(hits: list[int]) -> statistics.Scorer:
    """Return the scorer of a run that is right where there is a 1."""
    found = statistics.make_scorer(get_task("rte").measure, "accuracy", hits, [1] * len(hits))
    assert found is not None
    return found


def lines_of(text: str) -> set[str]:
    """Return the lines of the tables in a page, without the widths of their columns."""
    rows = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return {re.sub(r"\s*\|\s*", "|", row) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("path", MARKED)
def test_the_page_has_what_the_command_prints_of_the_committed_records(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DOCS.parent)
    page = (DOCS / "experiments.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {re.escape(path.stem)}: .*?(?=^## |\Z)", page, re.M | re.S)
    report.main(["--short", str(path.relative_to(DOCS.parent))])
    assert capsys.readouterr().out.rstrip() == section.rstrip()


def test_alone_a_sweep_is_told_by_number_too(capsys: pytest.CaptureFixture[str]) -> None:
    path = RECORDS / "partners-five.jsonl"
    report.main([str(path)])
    lines = lines_of(capsys.readouterr().out)
    assert "|measure|variant|pairs 1|pairs 2|pairs 3|pairs 4|pairs 5|" in lines
    numbered = [row for row in make_rows(read_results(path)) if row.number is not None]
    assert len(numbered) == 25
    for row in numbered:
        start = f"|{row.stem}|{row.variant.name}|"
        (line,) = (x for x in lines if x.startswith(start) and x.count("|") == 8)
        shown = line.split("|")[2 + (row.number or 0)]
        assert shown.startswith(f"{100 * (row.mean or 0):.1f} ± ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "row"),
    [
        (
            "programs/runs",
            "8000 functions, told|program-propagation against none|+17.4|+14.2 to +20.5",
        ),
        ("tables/runs", "4 × 4, rows 12, all|table-pairs against cells|+52.1|+11.4 to +92.8"),
        ("tables/longer", "4 × 4, rows 12, all|table-pairs against cells|+13.7|-26.4 to +53.8"),
        ("graphs/runs", "mines, right|jumps against multihead|-0.2|-0.6 to +0.3"),
    ],
)
def test_pairs_are_compared_as_the_pages_say(
    file: str, row: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report.main([str(RECORDS / f"{file}.jsonl")])
    (line,) = (x for x in lines_of(capsys.readouterr().out) if x.startswith(f"|{row}|"))
    answers = {"programs": "yes", "tables": "unknown", "graphs": "no"}
    assert line.endswith(f"|{answers[file.partition('/')[0]]}|")


@pytest.mark.parametrize(("without", "shown"), [(None, "ELMo"), ("wnli", "RoBERTa-base")])
def test_a_printed_mean_stands_where_it_is_of_the_same_tasks(
    without: str | None, shown: str
) -> None:
    sweep = read_sweep("glue-whole")
    part = sweep.model_copy(update={"tasks": tuple({*sweep.tasks} - {without})})
    quoted = list(quoted_rows(part, [Row(MEAN, "", "", sweep.base, {0: 0.5})]))[1:]
    found = {row.variant.name: row.paper for row in quoted}
    assert found[shown] == sweep.paper.scores[shown][MEAN]
    assert ("ELMo" in found) != ("RoBERTa-base" in found)  # the paper has no WNLI of the latter


def test_where_examples_alone_matter_it_is_every_resample_that_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statistics, "DRAWS", 20_000)
    ours, theirs = [1, 1, 0, 1], [0, 1, 0, 0]
    gaps = np.array(ours) - np.array(theirs)
    every = [gaps[list(places)].mean() for places in product(range(4), repeat=4)]
    draws = statistics.paired_bootstrap([of_hits(ours)], [of_hits(theirs)], "x", "")
    assert set(np.round(draws, 9)) == set(np.round(every, 9))
    assert draws.std() == pytest.approx(np.std(every), abs=0.01)
    assert statistics.percentiles(draws) == pytest.approx(tuple(np.percentile(every, [2.5, 97.5])))


def whole(score: float) -> statistics.Scorer:
    """Return the scorer of a run whose score no resample of examples changes."""
    return statistics.Scorer(np.ones((10, 1)), lambda sums: np.full(len(sums), score))


@pytest.mark.parametrize("found", [[0.2, 0.5], [0.1, 0.4, 0.3], [0.0, 0.2, 0.3, 0.7, 0.8]])
def test_where_seeds_alone_matter_it_is_the_paired_t_test(found: list[float]) -> None:
    truth = ttest_rel(found, [0.1] * len(found)).confidence_interval(0.95)
    of_seeds = statistics.over_seeds({seed: score - 0.1 for seed, score in enumerate(found)})
    assert of_seeds.interval == pytest.approx(tuple(truth))
    assert of_seeds.p == pytest.approx(ttest_1samp(np.array(found) - 0.1, 0).pvalue)
    draws = statistics.paired_bootstrap([*map(whole, found)], [whole(0.1)] * len(found), "x", "")
    assert statistics.percentiles(draws) == pytest.approx(tuple(truth), rel=0.05)


@settings(max_examples=10, deadline=None)
@given(HITS, HITS)
def test_exchanging_variants_mirrors_the_draws(one: list[int], other: list[int]) -> None:
    sides = [of_hits(one)], [of_hits(other)]
    there = statistics.paired_bootstrap(*sides, "x", "")
    back = statistics.paired_bootstrap(*sides[::-1], "x", "")
    assert np.array_equal(there, -back)


@pytest.mark.parametrize(
    ("task", "metric", "said", "right"),
    [
        ("rte", "accuracy", [0, 1, 1, 0], [0, 1, 0, 0]),
        ("cola", "matthews", [0, 1, 1, 0, 1], [0, 1, 0, 0, 1]),
        ("stsb", "pearson", [0.1, 2.0, 3.5, 1.0], [0.0, 2.5, 3.0, 2.0]),
        ("cb", "macro_f1", [0, 1, 2, 0, 1], [0, 1, 2, 2, 1]),
        ("multirc", "f1", [[0, 1], [1, 1], [0]], [[0, 1], [1, 0], [1]]),
        ("multirc", "exact_match", [[0, 1], [1, 1], [0]], [[0, 1], [1, 0], [1]]),
        ("wnut17", "f1", [[["person", 0, 1]], [], [["group", 2, 3]]], [[["person", 0, 1]]] * 3),
        ("squad", "f1", ["the tower", "in Paris"], [["a tower"], ["Rome", "Paris"]]),
    ],
)
def test_resamples_are_scored_as_the_task_does(
    task: str, metric: str, said: list, right: list
) -> None:
    measure = get_task(task).measure
    counts = np.random.default_rng(0).multinomial(len(right), [1 / len(right)] * len(right), 6)
    found = statistics.make_scorer(measure, metric, said, right)
    assert found is not None
    for row, score in zip(counts, found.scores(counts), strict=True):
        drawn = np.repeat(np.arange(len(right)), row)
        want = measure([said[place] for place in drawn], [right[place] for place in drawn])[metric]
        assert score == pytest.approx(want, nan_ok=True)


@pytest.mark.slow
def test_holm_counts_comparisons_made_elsewhere() -> None:
    assert statistics.holm([0.01, 0.04, 0.03], 3) == pytest.approx([0.03, 0.06, 0.06])
    assert statistics.holm([0.01, 0.04], 5) == pytest.approx([0.05, 0.16])
    assert statistics.holm([], 4) == []


def test_a_yes_is_as_large_as_was_asked_and_shown() -> None:
    results = read_results(RECORDS / "far-recall.jsonl")
    found = make_verdicts(results.sweep, make_rows(results))
    said = {(one.row.task, one.row.variant.name): one for one in found}
    stones = said["1 layer, 48 filler", "stones"]
    assert stones.said == "yes" and stones.gain > 1 and (stones.corrected or 1) < 0.05
    assert {one.said for one in found} <= {"yes", "no", "unknown"}
    assert said["1 layer, 48 filler", "pairs"].said != "yes"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["partners-five", "order-top", "depth", "scratch-listops"])
def test_figures_are_drawn(name: str, tmp_path: Path) -> None:
    path = str(RECORDS / f"{name}.jsonl")
    words = ["--figure", str(tmp_path / "figure.png")]
    words += ["--curves", str(tmp_path / "curves.png")] if name == "partners-five" else []
    words += ["--answers", str(tmp_path / "answers.png")] if name == "scratch-listops" else []
    report.main([path, *words])
    for picture in tmp_path.glob("*.png"):
        with Image.open(picture) as image:
            assert len(image.convert("L").getcolors(256) or ()) > 10
    assert len(list(tmp_path.glob("*.png"))) == len(words) // 2


@pytest.mark.slow
def test_a_variant_looks_alike_in_all_panels_and_unlike_the_others() -> None:
    for name, count in {"partners": 6, "reading/results": 10}.items():  # some panels lack variants
        results = read_results(RECORDS / f"{name}.jsonl")
        axes = figures.draw_rows(results, make_rows(results)).axes
        handles = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
        looks = {(x[0].get_color(), x[0].get_marker(), y) for own in handles for x, y in own}
        assert len(looks) == len({look[:2] for look in looks}) == count


def test_strengths_are_told_where_some_were_learned() -> None:
    results = read_results(RECORDS / "scratch-rate-0.01.jsonl")
    (line,) = report.strengths_frame(results).to_dict("records")
    learned = [
        record.content["strengths"] for record in results.of("ewtrelations", "stones").values()
    ]
    queries = np.abs([[theta[0] for theta in own.values()] for own in learned])
    assert line["queries"] == f"{queries.mean():.3f} ({queries.max():.2f})"
    assert report.strengths_frame(read_results(RECORDS / "partners-five.jsonl")).empty


def test_changes_against_another_variant_are_those_of_the_base_mirrored() -> None:
    results = read_results(RECORDS / "partners-five.jsonl")
    for row in make_rows(results):
        if row.change is None:
            continue
        turned = make_rows(report.compared(results, row.variant.name))
        (own,) = (r for r in turned if (r.place, r.variant) == (row.place, results.sweep.base))
        assert own.change is not None
        assert own.change.mean == pytest.approx(-row.change.mean)
    assert report.compared(results, None) == results
    with pytest.raises(ValueError, match="variant of sweep partners-five must be one of"):
        report.compared(results, "nothing")


@pytest.mark.parametrize("content", ["{}", '{"version": 9}', "no JSON", '{"version": 2}\n{}'])
def test_what_is_no_file_of_results_is_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^report: error: ") as caught:
        report.main([str(path)])
    assert "\n" not in str(caught.value)


def test_a_run_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    lines = (RECORDS / "partners-five.jsonl").read_text(encoding="utf-8").split("\n")
    (tmp_path / "results.jsonl").write_text("\n".join(lines[:2] + lines[1:2]), encoding="utf-8")
    with pytest.raises(ValueError, match="twice"):
        read_results(tmp_path / "results.jsonl")
    assert json.loads(lines[1])["arm"] == "plain"
