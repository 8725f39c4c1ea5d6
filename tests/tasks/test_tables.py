import gzip
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks.tables import Layout, find_table, plain_name, read_table

PAIR = Layout(texts=("a", "b"), label="y")
BARE = Layout(texts=("text",), label="y", columns=("id", "y", "text"))
SCORES = Layout(texts=("text",), label="y", codes=None)
NAMES = ("first", "second")

TEXT = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), min_size=1)


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_bytes((end.join(lines) + end).encode())
    return path


def message(path: Path, layout: Layout = PAIR, names: tuple[str, ...] = NAMES) -> str:
    """Read a bad file; return the error's one line."""
    with pytest.raises(ValueError) as caught:
        read_table(path, layout, names)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value).removeprefix(str(path))


# --- good files ----------------------------------------------------------------------------------


@given(st.lists(st.tuples(TEXT, TEXT, st.integers(0, 1)), min_size=1, max_size=8), st.booleans())
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]], packed: bool
) -> None:
    lines = ["y\tid\ta\tb", *(f"{y}\t7\tx{a}\t{b}" for a, b, y in rows)]
    content = "\n".join(lines).encode()
    path = tmp_path_factory.mktemp("table") / ("t.tsv.gz" if packed else "t.tsv")
    path.write_bytes(gzip.compress(content) if packed else content)
    table = read_table(path, PAIR, NAMES)
    assert table == {
        "first": [f"x{a}" for a, _, _ in rows],
        "second": [b for _, b, _ in rows],
        "label": [y for _, _, y in rows],
    }


def test_quotes_and_odd_separators_are_text(tmp_path: Path) -> None:
    line = '1\t"He said\tone\x85two\u2028three\x0bfour\rfive'
    path = write(tmp_path / "t.tsv", "y\ta\tb", line, '0\t"\t""')
    table = read_table(path, PAIR, NAMES)
    assert table["first"] == ['"He said', '"']
    assert table["second"] == ["one\x85two\u2028three\x0bfour\rfive", '""']


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_mark_of_byte_order_and_windows_lines_are_no_text(tmp_path: Path, end: str) -> None:
    path = write(tmp_path / "t.tsv", "\ufeffy\ta\tb", "1\tone\ttwo", end=end)
    assert read_table(path, PAIR, NAMES)["second"] == ["two"]


def test_a_file_without_header(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", "x\t1\tone", "y\t0\ttwo")
    assert read_table(path, BARE, ("s",)) == {"s": ["one", "two"], "label": [1, 0]}


def test_one_empty_text_of_two_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", "y\ta\tb", "1\t\ttwo")
    assert read_table(path, PAIR, NAMES)["first"] == [""]


# --- bad files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1\tone", "must have 3 columns, got 2"),
        ("1\tone\ttwo\tthree", "must have 3 columns, got 4"),
        ("", "must have 3 columns, got 1"),
        ("2\tone\ttwo", "must have a label of 0, 1, got '2'"),
        ("\tone\ttwo", "must have a label of 0, 1, got ''"),
        ("1\t\t ", "must have text, got none"),
    ],
)
def test_a_malformed_row_is_named_with_its_line(tmp_path: Path, row: str, problem: str) -> None:
    path = write(tmp_path / "t.tsv", "y\ta\tb", "0\tgood\trow", row, "1\tgood\trow")
    assert message(path) == f", line 3: the row {problem}"


@pytest.mark.parametrize("score", ["5.1", "-1", "nan", "inf", "", "high"])
def test_a_score_outside_its_bounds_is_named_with_its_line(tmp_path: Path, score: str) -> None:
    path = write(tmp_path / "t.tsv", "text\ty", "good\t5.000", f"bad\t{score}")
    problem = f", line 3: the row must have a score from 0 to 5, got {score!r}"
    assert message(path, SCORES, ("s",)) == problem


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"y\ta\tb\n1\tone\ttw\xff\n")
    assert message(path) == ", line 2: the row must be UTF-8, got a bad byte at column 9"


def test_another_header_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv", "index\ta\tlabel", "1\tone\ttwo")
    assert message(path).startswith(", line 1: the header must name a, b, y; 'b' is not in 'index")


@pytest.mark.parametrize("content", ["", "y\ta\tb\n", "y\ta\tb"])
def test_a_file_without_examples_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.tsv"
    path.write_text(content)
    assert "must hold" in message(path)


def test_an_empty_file_without_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.touch()
    assert message(path, BARE, ("s",)) == " must hold examples, got none"


@pytest.mark.parametrize("kept", [0.3, 0.9, 0.999])
def test_a_cut_off_gzip_file_is_refused(tmp_path: Path, kept: float) -> None:
    content = gzip.compress(
        "\n".join(["y\ta\tb", *(f"1\t{i}\tx{i}" for i in range(5000))]).encode()
    )
    path = tmp_path / "t.tsv.gz"
    path.write_bytes(content[: int(len(content) * kept)])
    assert message(path).startswith(" is cut off or damaged")


def test_a_damaged_or_unpacked_gzip_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tsv.gz", "y\ta\tb", "1\tone\ttwo")
    assert message(path).startswith(" is cut off or damaged")
    content = bytearray(gzip.compress(b"y\ta\tb\n" + b"1\tone\ttwo\n" * 500))
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert message(path).startswith(" is cut off or damaged")


# --- broken lines, where a layout allows some ----------------------------------------------------

LOOSE = Layout(texts=("a", "b"), label="y", broken_lines=True)


def test_few_broken_lines_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["y\ta\tb", *("1\tone\ttwo" for _ in range(2500))]
    lines[7], lines[99] = "half a question", "1\tcut"
    with caplog.at_level(logging.WARNING, logger="jat_graph"):
        table = read_table(write(tmp_path / "t.tsv", *lines), LOOSE, NAMES)
    assert len(table["label"]) == 2498
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 't.tsv'}: left out 2 broken lines, the first is 8"
    ]


def test_many_broken_lines_are_refused(tmp_path: Path) -> None:
    lines = ["y\ta\tb", *("1\tone\ttwo" for _ in range(2000))]
    for number in (7, 99, 500):
        lines[number] = "half a question"
    path = write(tmp_path / "t.tsv", *lines)
    assert message(path, LOOSE) == ", line 8: the row must have 3 columns, got 1"


def test_a_broken_last_line_is_refused(tmp_path: Path) -> None:
    lines = ["y\ta\tb", *("1\tone\ttwo" for _ in range(2000)), "1\tcut"]
    path = write(tmp_path / "t.tsv", *lines)
    assert message(path, LOOSE) == ", line 2002: the row must have 3 columns, got 2"


def test_a_wrong_label_is_refused_even_there(tmp_path: Path) -> None:
    lines = ["y\ta\tb", *("1\tone\ttwo" for _ in range(2000))]
    lines[3] = "2\tone\ttwo"
    assert "line 4" in message(write(tmp_path / "t.tsv", *lines), LOOSE)


# --- finding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["SST-2", "sst2", "SST2"])
def test_the_folder_may_be_the_tasks_own_or_the_one_above(tmp_path: Path, folder: str) -> None:
    own = tmp_path / folder
    own.mkdir()
    path = write(own / "dev.tsv", "x")
    assert find_table(own, "sst2", "dev") == path
    assert find_table(tmp_path, "sst2", "dev") == path


@pytest.mark.parametrize("folder", ["glue", "GLUE"])
def test_the_folder_may_hold_other_data_beside_glue(tmp_path: Path, folder: str) -> None:
    own = tmp_path / folder / "SST-2"
    own.mkdir(parents=True)
    path = write(own / "dev.tsv", "x")
    assert find_table(tmp_path, "sst2", "dev") == path
    (tmp_path / "SST-2").mkdir()
    nearer = write(tmp_path / "SST-2" / "dev.tsv", "x")
    assert find_table(tmp_path, "sst2", "dev") == nearer


def test_the_plain_file_comes_before_the_packed_one(tmp_path: Path) -> None:
    packed = write(tmp_path / "dev.tsv.gz", "x")
    assert find_table(tmp_path, "sst2", "dev") == packed
    plain = write(tmp_path / "dev.tsv", "x")
    assert find_table(tmp_path, "sst2", "dev") == plain


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "QNLI").mkdir()
    with pytest.raises(FileNotFoundError) as caught:
        find_table(tmp_path, "qnli", "train")
    where = f"{tmp_path} (it or its QNLI)"
    wanted = f"task qnli needs train.tsv or train.tsv.gz in {where}: no such file"
    assert str(caught.value) == wanted


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist or is not a folder"):
        find_table(tmp_path / "nowhere", "rte", "dev")


def test_plain_names() -> None:
    assert [plain_name(name) for name in ("SST-2", " sts_b ", "CoLA")] == ["sst2", "stsb", "cola"]
