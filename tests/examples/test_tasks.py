"""Named tasks: counts of the real files, texts that are made, and what is drawn of them."""

import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.tasks import TASKS, get_task
from examples.tasks.agreement import LEXICONS, agreement_task
from examples.tasks.base import stratified_split
from examples.tasks.documents import article_text, brown_text
from examples.tasks.language import chorale_to_tokens
from examples.tasks.listops import evaluate_listops, listops_task
from examples.tasks.recall import FarRecallTask, IdSequences, PartnersTask, RecallTask
from examples.tasks.superglue import check_word, find_words, mark_spans

SEEDS = st.integers(0, 10_000)

# --- the original files --------------------------------------------------------------------------

COUNTS = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "rte": (2490, 277),
    "wnli": (635, 71),
    "cb": (250, 56),
    "copa": (400, 100),
    "multirc": (27243, 4848),
    "wic": (5428, 638),
    "superrte": (2490, 277),
    "brown": (300, 100, 100),
    "imdb": (1601, 178, 1210),
    "hyperpartisan": (515, 65, 65),
    "squad": (4370, 10570),
    "covidqa": (919, 229, 225),
    "covidqafar": (708, 183, 180),
    "covidqafarhalf": (828, 204, 207),
    "qmsum": (146, 28, 39),
    "qmsumthird": (158, 35, 41),
    "wnut17": (3394, 1009),
    "ewtpos": (12544, 2001, 2077),
    "ewtrelations": (12544, 2001, 2077),
    "tinyshakespeare": (1, 1),
    "chorales": (229, 76, 77),
    "choralesquarter": (229, 76, 77),
}
# Columns of each kind of rows.
KINDS = (
    {"text", "label"},
    {"text", "choices", "label"},
    {"tokens", "tags"},
    {"id", "question", "context", "answers"},
    {"text"},
    {"tokens"},
)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_those_of_the_files(name: str, data_dir: Path) -> None:
    task = get_task(name)
    splits = task.load(data_dir)
    assert tuple(map(len, splits.values())) == COUNTS[name]
    columns = set(splits["train"].column_names) - {"text_pair", task.source, task.group, task.by}
    assert columns in [kind - {task.source} for kind in KINDS]
    last = task.splits[-1]
    assert task.load(str(data_dir), [last])[last].to_list() == splits[last].to_list()


PARTS = [("qnli", 5463), ("boolq", 3270), ("wsc", 104), ("wikitext2", 60)]


@pytest.mark.parametrize(("name", "count"), PARTS)
def test_only_the_dev_file_is_there(name: str, count: int, data_dir: Path) -> None:
    assert len(get_task(name).load(data_dir, ["validation"])["validation"]) == count
    with pytest.raises(FileNotFoundError, match=r"must hold \S*train\.\w+.*, itself or in \w+/"):
        get_task(name).load(data_dir, ["train"])


@pytest.mark.parametrize("name", ["squad", "covidqa", "covidqafar"])
def test_answers_stand_where_the_rows_say(name: str, data_dir: Path) -> None:
    for row in get_task(name).load(data_dir, ["validation"])["validation"]:
        for text, start in zip(*row["answers"].values(), strict=True):
            assert row["context"].startswith(text, start)
            assert name != "covidqafar" or start >= 2200


def test_rows_are_those_of_the_files(data_dir: Path) -> None:
    wsc = get_task("wsc").load(data_dir, ["validation"])["validation"]
    assert all(len(re.findall(r"(?<!\S)[*#](?!\S)", row["text"])) == 4 for row in wsc)
    brown = get_task("brown").load(data_dir)
    assert {len(set(rows["label"])) for rows in brown.values()} == {15}
    texts = [text for rows in brown.values() for text in rows["text"]]
    assert len(set(texts)) == 500 and min(len(text.split()) for text in texts) > 1500
    wnut = get_task("wnut17").load(data_dir, ["train"])["train"]
    names = wnut.features["tags"].feature.names
    begun = Counter(names[tag][2:] for tags in wnut["tags"] for tag in tags if tag % 2)
    assert begun["person"] == 660 and begun.total() == 1975
    qmsum = get_task("qmsum").load(data_dir)
    meetings = [set(rows["meeting"]) for rows in qmsum.values()]
    assert not set.intersection(*meetings) and all(
        len(set(r["choices"])) == 4 for r in qmsum["test"]
    )


def test_files_of_ones_own_are_found_packed_or_not(tmp_path: Path) -> None:
    table = (
        'index\tsentence1\tsentence2\tlabel\n0\tHe "said\tit\tentailment\n1\ta\tb\tnot_entailment\n'
    )
    (tmp_path / "rte").mkdir()
    (tmp_path / "rte/dev.tsv.gz").write_bytes(gzip.compress(table.encode()))
    for folder in (tmp_path, tmp_path / "rte"):
        rows = get_task("RTE").load(folder, ["validation"])["validation"]
        assert rows["label"] == [0, 1] and rows["text"][0] == 'He "said'


CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
no VB I O

Ann N I I-PER
Bo N I B-PER
\tUN N I I-ORG \r
"""
TREE = '{"data": [{"paragraphs": [{"context": "abc", "qas": [%s]}]}]}'
RTE = "sentence1\tsentence2\tlabel\n"
LACKING = '{"id": 1, "question": "q", "answers": [], "is_impossible": %s}'
BROKEN: list[tuple[str, str, str, str]] = [
    ("rte", "dev.tsv", "", "dev.tsv must have the layout of columns"),
    ("rte", "dev.tsv", f"{RTE}a\tb\tmaybe\n", "labels of entailment, .*maybe"),
    ("rte", "dev.tsv", f"{RTE}a\tb", "labels of entailment"),
    ("rte", "dev.tsv", f"{RTE}0\ta\tb\tc\n", "got more columns than 3"),
    ("rte", "dev.tsv", "sentence1\tlabel\na\tb\n", "the layout of columns sentence1, sentence2"),
    ("cb", "val.jsonl", "{", "val.jsonl, line 1 must be JSON: "),
    ("cb", "val.jsonl", "\n", "there must be rows of entailment, .*, got none"),
    ("cb", "val.jsonl", '{"premise": "a"}', "line 1 must have the layout of SuperGLUE, got no"),
    ("wic", "val.jsonl", '{"sentence1": "ab", "start1": 0, "end1": 1}', "1: the row must have"),
    ("squad", "dev-v1.1.json", "[]", "must have the layout of SQuAD"),
    (
        "squad",
        "dev-v1.1.json",
        TREE % '{"id": 1, "question": "q"}',
        "question 1 must have an answer",
    ),
    ("squad", "dev-v1.1.json", TREE % r'"\ud83d"', "must be Unicode text, got a lone surrogate"),
    ("squad2", "dev-v2.0.json", TREE % LACKING % '"false"', "is_impossible 'false' for ques"),
    ("wnut17", "emerging.dev.conll", "word B-place\n", "tags must be among O, B-corporation"),
    ("wnut17", "emerging.dev.conll", "word\n", "line 1 must have a word and a tag"),
    ("ewtpos", "en_ewt-ud-dev.conllu", "1\ta\n", "must have the column upos, got '1 a'"),
    ("wikitext2", "valid.txt", "no title", "must begin with a title"),
    ("chorales", "jsb-chorales-16th.json", '{"train": [[[200]]]}', "the layout of chorales"),
    ("qmsum", "val.jsonl", "{}", "line 1 must have the layout of QMSum"),
    ("hyperpartisan", "articles-training-byarticle-20181122.xml", "<a", "articles-training"),
    (
        "hyperpartisan",
        "articles-training-byarticle-20181122.xml",
        "<!DOCTYPE a>",
        "no document type",
    ),
    ("imdb", "aclImdb_subset.tar.gz", "x", "aclImdb_subset.tar.gz must have"),
    ("brown", "brown.zip", "x", "layout of NLTK's Brown corpus"),
]


@pytest.mark.parametrize(("name", "file", "text", "message"), BROKEN)
def test_a_broken_file_is_named(
    name: str, file: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        get_task(name).load(tmp_path, ["train" if name == "chorales" else "validation"])
    assert "\n" not in str(error.value).strip()


def test_iob1_is_read_as_bio(tmp_path: Path) -> None:
    (tmp_path / "valid.txt").write_text(CONLL)
    rows = get_task("conll2003").load(tmp_path, ["validation"])["validation"]
    names = rows.features["tags"].feature.names
    assert [[names[tag] for tag in tags] for tags in rows["tags"]] == [
        ["B-ORG", "O"],
        ["B-PER", "B-PER", "B-ORG"],
    ]
    assert rows["tokens"] == [["EU", "no"], ["Ann", "Bo", "UN"]]


def test_tasks_are_found_as_users_type_them() -> None:
    assert get_task("SST-2").name == "sst2" and get_task("ewt-pos").name == "ewtpos"
    with pytest.raises(ValueError, match=r"task_name must be one of cola, .* got 'imagenet'"):
        get_task("imagenet")
    with pytest.raises(ValueError, match="split of task rte must be one of train, validation"):
        TASKS["rte"].load(".", ["dev"])
    with pytest.raises(FileNotFoundError, match="data_dir must be a folder, got /nowhere"):
        TASKS["rte"].load("/nowhere")


def test_classes_keep_their_share_in_every_split() -> None:
    classes = ["a"] * 50 + ["b"] * 10 + ["c"]
    splits = stratified_split(classes, {"validation": 0.2, "test": 0.1})
    assert sorted(row for rows in splits.values() for row in rows) == [*range(61)]
    counts = {name: Counter(classes[row] for row in rows) for name, rows in splits.items()}
    assert counts["validation"] == {"a": 10, "b": 2} and counts["test"] == {"a": 5, "b": 1}


# --- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("The jury said , `` No evidence '' .", 'The jury said, "No evidence".'),
        ("Why ? ? Stop ! !", "Why? Stop!"),
        ("He ( the mayor ) went", "He (the mayor) went"),
        ("the ' pro ' letters", "the 'pro' letters"),
        ("and/or Atlanta's $1,000 3.5", "and/or Atlanta's $1,000 3.5"),
    ],
)
def test_brown_is_written_as_people_write(words: str, text: str) -> None:
    assert brown_text(" ".join(f"{word}/nn" for word in words.split())) == text


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ("<p>One <a href='x'>two</a> three.</p> <p>Four.</p>", "One two three.\n\nFour."),
        ("Photo <p>One.</p>Between<p>Two.</p> ", "Photo\n\nOne.\n\nBetween\n\nTwo."),
        ("<p>Bread &amp;amp; &#233;&gt;</p><p/>", "Bread & é>"),
    ],
)
def test_markup_goes_and_paragraphs_stay(inside: str, text: str) -> None:
    assert article_text(ElementTree.fromstring(f"<article>{inside}</article>")) == text


def test_chorales_are_written_step_by_step() -> None:
    steps = [[60, 55], [62.0, 57, 53, 50]]
    assert chorale_to_tokens(steps) == [129, 60, 55, 128, 128, 62, 57, 53, 50]


def test_marks_stand_around_the_words_that_are_asked_about() -> None:
    text = "I poured water into the cup until it was full."
    marks = [(find_words(text, "The cup", 4), "*"), (find_words(text, "it", 8), "#")]
    wanted = "I poured water into * the cup * until # it # was full."
    assert mark_spans(text, marks) == mark_spans(text, marks[::-1]) == wanted
    with pytest.raises(ValueError, match="must have 'water' as word 7"):
        find_words(text, "water", 7)
    check_word("he didn't go", 3, 6)
    with pytest.raises(ValueError, match="must have whole words from 3 to 5"):
        check_word("he didn't go", 3, 5)


# --- texts that are made -------------------------------------------------------------------------


MADE = {
    "partners": (PartnersTask(test_size=20, pairs=4), "135dfcb1cdbfa28b"),
    "far recall": (FarRecallTask(test_size=20), "cdd271f6d6f347ad"),
    "agreement": (agreement_task(validation=24), "a78dc3cfe9f3d7b6"),
    "listops": (listops_task(test=24), "1a333cff875a530d"),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_stays_as_it_is(name: str) -> None:
    task, wanted = MADE[name]
    split = task.splits[-1]
    rows = json.dumps(task.load(None, [split])[split].to_list(), sort_keys=True)
    assert hashlib.sha256(rows.encode()).hexdigest()[:16] == wanted


@given(seed=SEEDS)
def test_only_the_subject_tells_the_verb(seed: int) -> None:
    splits = agreement_task(train=24, validation=12, seed=seed).load(None)
    for name, lexicon in LEXICONS.items():
        nouns = [*lexicon["things"]["nouns"], *lexicon["people"]["nouns"]]
        plural = {form: index for noun in nouns for index, form in enumerate(noun)}
        counts: Counter[tuple[int, int, bool]] = Counter()
        for row in splits[name]:
            numbers = [plural[word] for word in row["text"].rstrip(".").split() if word in plural]
            assert numbers[0] == row["label"] and len(numbers) == 1 + row["attractors"]
            counts[row["label"], row["attractors"], numbers[-1] != row["label"]] += 1
        assert set(counts.values()) == {2}
        assert {conflict for *_, conflict in counts} == (
            {True, False} if name == "train" else {True}
        )


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    names = st.sampled_from(("MIN", "MAX", "MED", "SM"))
    words = st.lists(inner, min_size=1, max_size=6).map(" ".join)
    return st.tuples(names, words).map(lambda drawn: f"[{drawn[0]} {drawn[1]} ]")


@given(st.recursive(st.sampled_from("0123456789"), lists, max_leaves=30))
def test_lists_come_to_what_rewriting_them_gives(expression: str) -> None:
    def value(found: re.Match[str]) -> str:
        numbers = sorted(map(int, found[2].split()))
        middle = (numbers[(len(numbers) - 1) // 2] + numbers[len(numbers) // 2]) // 2
        values = {"MIN": numbers[0], "MAX": numbers[-1], "MED": middle, "SM": sum(numbers) % 10}
        return str(values[found[1]])

    text = expression
    while not text.isdigit():
        text = re.sub(r"\[(MIN|MAX|MED|SM)((?: \d)+) \]", value, text)
    assert evaluate_listops(expression) == int(text)


@given(seed=SEEDS, low=st.integers(4, 12), more=st.integers(0, 12))
def test_lists_are_as_long_as_asked_and_labels_balanced(seed: int, low: int, more: int) -> None:
    task = listops_task(train=23, min_length=low, max_length=low + more, seed=seed)
    rows = task.load(None, ["train"])["train"]
    assert all(low <= len(text.split()) <= low + more for text in rows["text"])
    assert sorted(Counter(rows["label"]).values()) == [2] * 7 + [3] * 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agreement_task(train=10), "train must be a multiple of 12"),
        (lambda: listops_task(test=0), "test must be 1 or more, got 0"),
        (lambda: listops_task(min_length=9, max_length=8), "min_length must be from 4"),
        (lambda: evaluate_listops("[MAX 2"), "expression must be one closed list"),
        (lambda: evaluate_listops("[MUL 2 ]"), r"operator must be one of \[MIN"),
        (lambda: PartnersTask(pairs=5, names=9), "names must be at least 10, got 9"),
        (lambda: FarRecallTask(filler=-1), "filler must be at least 0, got -1"),
        (lambda: chorale_to_tokens([[128]]), "pitches from 0 to 127, got 128"),
    ],
)
def test_settings_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task = make()
        task.load(None)


# --- recall --------------------------------------------------------------------------------------

SIZES = {"train_size": 7, "validation_size": 3, "test_size": 20}


def tokens_of(drawn: IdSequences) -> list[list[tuple[int, int, int, int]]]:
    """Return the tokens of each sequence, without padding."""
    stacked = np.stack([drawn.first, drawn.second, drawn.value, drawn.answer], axis=-1)
    return [[tuple(token) for token in row if token[0]] for row in stacked.tolist()]


@given(pairs=st.integers(1, 6), values=st.integers(1, 9), seed=SEEDS)
def test_names_are_asked_for_the_value_of_the_one_that_shares_their_hub(
    pairs: int, values: int, seed: int
) -> None:
    drawn = PartnersTask(pairs=pairs, values=values, seed=seed, **SIZES).sequences("test")
    for tokens, size in zip(tokens_of(drawn), drawn.size.tolist(), strict=True):
        carried = {first: value for first, second, value, _ in tokens if not second}
        asked = {first: answer for first, second, _, answer in tokens if not second}
        hubs = [(first, second) for first, second, *_ in tokens if second]
        assert len(tokens) == 3 * size and len(carried) == 2 * size <= 2 * pairs
        assert sorted(name for hub in hubs for name in hub) == sorted(carried)
        assert all(1 <= value <= values for value in carried.values())
        assert all((asked[x], asked[y]) == (carried[y], carried[x]) for x, y in hubs)


@given(told=st.integers(1, 6), filler=st.integers(0, 9), seed=SEEDS)
def test_names_are_told_then_filler_comes_then_each_is_asked(
    told: int, filler: int, seed: int
) -> None:
    task = FarRecallTask(told=told, names=12, filler=filler, seed=seed, **SIZES)
    for tokens in tokens_of(task.sequences("test")):
        carried = {first: value for first, _, value, _ in tokens[:told]}
        asked = {first: answer for first, _, _, answer in tokens[-told:]}
        assert carried == asked and len(carried) == told and len(tokens) == 2 * told + filler
        assert all(12 < word <= task.num_names for word, *_ in tokens[told:-told])


@pytest.mark.parametrize("task", [PartnersTask(test_size=600), FarRecallTask(test_size=600)])
def test_what_is_right_is_counted_by_size(task: RecallTask) -> None:
    asked = task.sequences("test")
    assert set(task.measure(asked.answer, asked).values()) == {1.0}
    first = task.sizes[0]
    said = np.where(asked.size[:, None] == first, asked.answer, 0)
    scores = task.measure(said, asked)
    assert {scores.pop(f"accuracy_{size}") for size in task.sizes[1:]} <= {0.0}
    asked_of = (asked.answer > 0).sum(1)
    share = asked_of[asked.size == first].sum() / asked_of.sum()
    assert scores == pytest.approx({"accuracy": share, f"accuracy_{first}": 1.0})
