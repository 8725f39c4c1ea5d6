"""The caption says what a table was made from, and no more than is true."""

from dataclasses import replace

from jat_graph.lab.studies.captions import caption_lines
from jat_graph.lab.studies.rows import experiment_rows
from tests.lab.studies import made_up

ROWS = experiment_rows(made_up.results())


def test_the_caption_names_what_was_really_used() -> None:
    text = "\n".join(caption_lines(made_up.results(), ROWS))
    for part in (
        "Model a-model, data folder 'glue', 3 seeds.",
        "Examples: rte 100 (train) and 60 (validation); stsb",
        "new seeds and new examples at once: a paired bootstrap",
        "not corrected for their number",
        "ρ is the one of 4, 6 that did best on 10% of the training data",
        "The paper's numbers (Table 1) are those of BERT-base.",
        "Budget: a minute.",
        "A Processor, 2 cores",
        "torch 2.13.0",
    ):
        assert part in text


def test_the_caption_says_for_which_arm_a_threshold_was_chosen() -> None:
    arms = [{"name": "base"}, *({"name": name, "heads": "paper"} for name in ("a", "b", "c"))]
    arms[1]["tune"], arms[2]["tune"], arms[3]["tune"] = (True, "a", "a")
    text = "\n".join(caption_lines(made_up.results(made_up.grid(arms=arms, paper={})), ROWS))
    assert "It was chosen for a, which that favours; b, c took it over." in text


def test_the_caption_counts_seeds_where_they_differ_and_says_what_intervals_are_of() -> None:
    whole = made_up.results()
    records = [replace(record, answers={}) for record in whole.records]
    text = "\n".join(caption_lines(replace(whole, records=tuple(records[1:])), ROWS))
    assert "2 to 3 seeds." in text
    assert "its interval is that of new seeds, Student's of the paired t test." in text


def test_the_caption_says_no_more_than_is_true() -> None:
    grid = made_up.grid(paper={}, tuning={"thresholds": [4.0]}, budget="", seeds=1)
    results = replace(made_up.results(grid), data=None, machine={"gpu": "A GPU"})
    text = "\n".join(caption_lines(results, ROWS))
    assert "Model a-model, data by name, 1 seed." in text
    assert "In the paper: Table 1." in text
    assert "Run on A GPU, unknown processor, ? cores" in text
    assert "Budget" not in text


def test_the_papers_model_is_named_if_it_is_known() -> None:
    grid = made_up.grid(paper={"base": {"rte": 69.3}}, source="Table 1")
    text = "\n".join(caption_lines(made_up.results(grid), ROWS))
    assert "In the paper: Table 1." in text and "those of ." not in text


def test_arms_that_train_on_other_examples_are_named() -> None:
    whole = made_up.results()
    records = [
        replace(r, examples={"train": 50}) if r.arm == "JAT" and r.task == "rte" else r
        for r in whole.records
    ]
    text = "\n".join(caption_lines(replace(whole, records=tuple(records)), ROWS))
    both = "rte 100 (train) and 60 (validation) for base, JAT†, 50 (train) for JAT; stsb 100"
    assert both in text


def test_a_share_of_the_data_is_stated() -> None:
    whole = made_up.results()
    records = [replace(r, all_examples={"train": 2500, "validation": 60}) for r in whole.records]
    text = "\n".join(caption_lines(replace(whole, records=tuple(records)), ROWS))
    assert "rte 100 of 2,500 (train) and 60 (validation)" in text


def test_all_machines_and_versions_are_named() -> None:
    grid = made_up.grid(columns=["seconds"], paper={})
    whole = made_up.results(grid)
    other = {"processor": "Another", "cores": 8, "gpu": "A GPU", "torch": "2.14.0"}
    records = (replace(whole.records[0], machine=other), *whole.records[1:])
    line = caption_lines(replace(whole, records=records), ROWS)[-1]
    assert "Run on A GPU, Another, 8 cores and A Processor, 2 cores;" in line
    assert "torch 2.14.0 or 2.13.0." in line and "Times of different machines" in line
    assert "Times of different machines" not in caption_lines(whole, ROWS)[-1]


def test_the_numbers_that_all_cells_multiplied_in_are_named() -> None:
    whole = made_up.results()
    assert "cores; " in caption_lines(whole, ROWS)[-1]
    first, *others = whole.records
    for name, rest, said in [
        ("bf16", "bf16", " in bf16;"),
        ("bf16", "no", " in bf16 and fp32;"),
        ("bf16", None, "cores;"),
    ]:
        records = [replace(record, mixed_precision=rest) for record in others]
        records.insert(0, replace(first, mixed_precision=name))
        assert said in caption_lines(replace(whole, records=tuple(records)), ROWS)[-1]
