"""Rows of own files: what is written is what is read, and what is wrong is one line."""

import csv
import gzip
import io
import json
import re

import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedConfig, TrainingArguments

from examples.arguments import DataArguments
from examples.data import load_splits
from examples.own_rows import as_numbers, own_rows, read_rows
from examples.run_classification import with_classes

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1).filter(
    lambda text: text.strip()
)
ROWS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5)
COLUMNS = {"text": "text", "label": "label"}
CONTEXT = "Dögs 🐕 bark at night, and cats sleep by day."


def table_of(rows, separator=","):
    made = io.StringIO(newline="")
    csv.writer(made, delimiter=separator).writerows([("text", "label"), *rows])
    return made.getvalue()


def labels_of(file, text):
    file.write_bytes(text.encode())
    return own_rows(read_rows(str(file), COLUMNS), COLUMNS, "the train data")["label"][:]


@pytest.mark.parametrize("name", ["a.csv", "y[1].tsv", "part-*.JSON", "[draft]?.jsonl", "A.CSV.gz"])
@given(rows=ROWS)
def test_what_is_written_is_read_from_a_file_of_any_name(tmp_path_factory, name, rows):
    folder = tmp_path_factory.mktemp("own")
    (folder / "y1.tsv").write_text("text\tlabel\nwrong\tfile\n")
    (folder / "part-1.JSON").write_text(json.dumps({"text": "wrong", "label": "file"}))
    objects = [{"text": text, "label": label} for text, label in rows]
    if "json" in name.lower():
        text = "\n".join(map(json.dumps, objects)) if name.endswith("l") else json.dumps(objects)
    else:
        text = table_of(rows, "\t" if "tsv" in name else ",")
    content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (folder / name).write_bytes(content)
    made = own_rows(read_rows(str(folder / name)), COLUMNS, "the train data")
    assert made.to_list() == objects


@given(st.lists(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))))
def test_numbers_are_those_that_are_written(numbers):
    assert as_numbers(map(json.dumps, numbers)) == list(map(float, numbers))


@pytest.mark.parametrize("word", ["", "1_000", "nan", "inf", "NA", "0x1", "one"])
def test_words_are_no_numbers(word):
    assert as_numbers(["1", word]) is None


@pytest.mark.parametrize("labels", ["01 1 02 NA None null nan", "1.0 1 1e0"])
def test_labels_of_a_table_are_as_they_are_written(tmp_path, labels):
    rows = [("dogs", label) for label in labels.split()]
    assert labels_of(tmp_path / "a.csv", table_of(rows)) == labels.split()


@pytest.mark.parametrize(
    ("labels", "read"),
    [("[1, 2.0, -3.5]", ["1", "2", "-3.5"]), ("[true, false]", ["true", "false"])],
)
def test_labels_of_json_are_as_they_are_written(tmp_path, labels, read):
    rows = [{"text": "dogs", "label": label} for label in json.loads(labels)]
    assert labels_of(tmp_path / "a.json", json.dumps(rows)) == read


def test_numbers_of_thousands_of_rows_decide_no_type(tmp_path):
    rows = [("1984", "a")] * 12_000 + [("dogs", "b")]
    assert labels_of(tmp_path / "a.csv", table_of(rows))[-1] == "b"


def test_other_columns_may_have_any_name(tmp_path):
    assert labels_of(tmp_path / "a.csv", "text,label,x,x,,\na,b,c,d,,\n") == ["b"]


def test_marks_of_utf_16_line_ends_in_cells_and_long_cells_are_read(tmp_path):
    rows = [('dogs,\r\n"cats"', "a"), ("x" * 200_000, "b")]
    file = tmp_path / "a.csv"
    file.write_bytes(table_of(rows).encode("utf-16"))
    assert [(row["text"], row["label"]) for row in read_rows(str(file))] == rows


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "text,label\na,1\nb,\n", "1 of 2 rows of the train data are bad: row 1: "),
        ("a.csv", "text,label\na\n", "row 0: its label is missing"),
        ("a.csv", "text,label\na,1,2\n", "row 0: it has more cells than the header, got ['2']"),
        ("a.csv", "text,label\n\"a,1\n", "must be a table, got unexpected end of data in line"),
        ("a.csv", "text,text,label\na,b,1\n", "must have one column of a name, got 'text' twice"),
        ("a.csv", "", "must begin with names of columns, got an empty"),
        ("a.csv", "text,label\n", "the train data must have rows, got none"),
        ("a.csv", "text,verdict\na,b\n", "must have a column 'label', got text, verdict"),
        ("a.csv", "text;label\na;1\n", "must have commas between its columns, got 'text;label'"),
        ("a.tsv", "text,label\na,1\n", "must have tabs between its columns, got 'text,label'"),
        ("a.json", '{"text": "a"', "a.json must be JSON: "),
        ("a.json", "[" * 100_000, "a.json must be JSON, got brackets nested too deeply"),
        ("a.json", "[1]", "row 0 of .*a.json must be a JSON object, got 1"),
        ("a.json", '{"text": "\\ud800", "label": "a"}', "must be Unicode text, got a lone"),
        ("a.json", '{"text": 1984, "label": "a"}', "row 0: its text must be text, got 1984"),
        ("a.json", '{"text": "a", "label": ["b"]}', "row 0: its label must be a class or a number"),
        ("a.json", '{"text": "a", "label": NaN}', "row 0: its label must be finite, got nan"),
        ("a.json", '{"text":"a", "label":1} {"text":"b", "label":"x"}', "got 1 in row 0, 'x' in"),
        ("a.parquet", "", "must end in .csv, .tsv, .json, .jsonl or .txt, got '.parquet'"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line(tmp_path, name, text, said):
    with pytest.raises(ValueError, match=re.escape(said).replace(r"\.\*", ".*")) as error:
        labels_of(tmp_path / name, text)
    assert "\n" not in str(error.value)


def test_bad_rows_are_counted_and_left_out_if_that_is_asked_for(caplog):
    rows = [{"text": "a", "label": "b"}, *[{"text": "a", "label": None}] * 4]
    with pytest.raises(ValueError, match=r"^4 of 5 rows .*row 1: .*row 2: .*row 3: [^;]*; --drop"):
        own_rows(rows, COLUMNS, "the train data")
    made = own_rows(rows, COLUMNS, "the train data", drop_bad=True)
    assert made.to_list() == rows[:1]
    assert "4 of 5 rows of the train data are bad" in caplog.text
    with pytest.raises(ValueError, match="4 of 4 rows"):
        own_rows(rows[1:], COLUMNS, "the train data", drop_bad=True)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"tokens": "Anna sings", "tags": "B O"}, None),
        ({"tokens": ["Anna"], "tags": [3]}, None),
        ({"tokens": "['Anna', 'sings']", "tags": "B O"}, "must have blanks between words"),
        ({"tokens": [], "tags": []}, "its tokens must have words, got []"),
        ({"tokens": ["Anna", None], "tags": ["B", "O"]}, "must have words, got None among"),
        ({"tokens": ["Anna", ""], "tags": ["B", "O"]}, "its tokens must have words, got '' among"),
        ({"tokens": [" ", "a"], "tags": ["B", "O"]}, "its tokens must have words, got ' ' among"),
        ({"tokens": ["Anna"], "tags": [None]}, "its tags must have words, got None among"),
        ({"tokens": "Anna sings", "tags": "B"}, "must have a tag a word, got 2 and 1"),
    ],
)  # fmt: skip
def test_sentences_have_a_tag_a_word(row, said):
    columns = {"tokens": "tokens", "tags": "tags"}
    if said is None:
        (made,) = own_rows([row], columns, "the train data")
        assert len(made["tokens"]) == len(made["tags"]) > 0
        return
    with pytest.raises(ValueError, match=re.escape(said)):
        own_rows([row], columns, "the train data")


QUESTION = {name: name for name in ("question", "context", "answers")}


def question(texts, starts):
    answers = {"text": texts, "answer_start": starts}
    return {"question": "Who?", "context": CONTEXT, "answers": answers}


@given(st.integers(0, len(CONTEXT) - 1), st.integers(1, 9), st.integers(-3, 60))
@example(CONTEXT.index("cats"), 4, CONTEXT.index("cats"))  # behind what takes several units
def test_answers_stand_where_they_are_said_to(start, length, said):
    answer = CONTEXT[start : start + length]
    stands = said >= 0 and CONTEXT.startswith(answer, said)
    if stands:
        assert len(own_rows([question([answer], [said])], QUESTION, "the train data")) == 1
    else:
        with pytest.raises(ValueError, match=f"must stand at {said}, got "):
            own_rows([question([answer], [said])], QUESTION, "the train data")


@pytest.mark.parametrize("units", ["utf-8", "utf-16-le"])
def test_offsets_in_bytes_or_units_of_utf_16_are_refused(units):
    before = CONTEXT.partition("cats")[0].encode(units)
    wrong = len(before) // (2 if units.endswith("le") else 1)
    with pytest.raises(ValueError, match=f"answer 'cats' must stand at {wrong}"):
        own_rows([question(["cats"], [wrong])], QUESTION, "the train data")


@pytest.mark.parametrize(
    ("texts", "starts", "said"),
    [
        ("cats", 26, "must have as many text as answer_start, in lists"),
        (["cats"], [], "must have as many text as answer_start, in lists"),
        (["cats", "Dögs"], [0], "must have as many text as answer_start, in lists"),
        (["cats"], ["26"], "must have whole numbers as answer_start, got '26'"),
        ([""], [0], "must have texts of answers, got ''"),
    ],
)
def test_answers_have_texts_and_offsets(texts, starts, said):
    with pytest.raises(ValueError, match=said):
        own_rows([question(texts, starts)], QUESTION, "the train data")


def test_a_question_may_have_no_answer_but_not_an_empty_context():
    (row,) = own_rows([question([], [])], QUESTION, "the train data")
    assert row["answers"] == {"text": [], "answer_start": []}
    with pytest.raises(ValueError, match="row 0: its context is empty"):
        own_rows([question([], []) | {"context": " \n"}], QUESTION, "the train data")


def splits_of(folder, columns, **features):
    """Write a data set, and read it by its name."""
    rows = {name: values for name, (values, _) in features.items()}
    kinds = Features({name: kind for name, (_, kind) in features.items()})
    made = Dataset.from_dict(rows, features=kinds)
    for split in ("train", "validation"):
        made.to_parquet(folder / f"{split}.parquet")
    data = DataArguments(dataset_name=str(folder))
    args = TrainingArguments(str(folder / "run"), do_train=True, do_eval=True, use_cpu=True)
    return load_splits(data, None, args, columns)


TEXTS = ["dogs", "", "cats"], Value("string")  # an empty one is no mistake of the user


def test_classes_of_a_named_data_set_are_its_own(tmp_path):
    kind = ClassLabel(names=["1", "0", "2"])
    splits = splits_of(tmp_path, COLUMNS, text=TEXTS, label=([0, 1, 2], kind))
    assert splits["train"].features["label"] == kind and splits["train"]["label"][:] == [0, 1, 2]
    assert with_classes(splits, None, PreTrainedConfig()) == splits
    numbers = with_classes(splits, True, PreTrainedConfig())["train"]["label"]
    assert numbers[:] == [0.0, 1.0, 2.0]


def test_tags_of_a_named_data_set_are_its_own(tmp_path):
    kind = List(ClassLabel(names=["1", "0"]))
    words = [["a", "b"], ["c"]], List(Value("string"))
    columns = {"tokens": "tokens", "pos": "tags"}
    splits = splits_of(tmp_path, columns, tokens=words, pos=([[0, 1], [0]], kind))
    assert splits["train"]["tags"][:] == [[0, 1], [0]] and splits["train"].features["tags"] == kind


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [([2.0, 1.0, 3.0], "float32", None), ([2, 10, 2], "int64", ["2", "10"])],
)
def test_numbers_of_a_named_data_set_have_the_type_that_it_declares(tmp_path, labels, kind, names):
    splits = splits_of(tmp_path, COLUMNS, text=TEXTS, label=(labels, Value(kind)))
    made = with_classes(splits, None, PreTrainedConfig())["train"].features["label"]
    assert (made.names if names else made.dtype) == (names or "float32")
