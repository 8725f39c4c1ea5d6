import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks.superglue_spans import (
    Span,
    WrongSpanError,
    check_word,
    find_words,
    mark_spans,
)

WORD = st.text("abcé'-", min_size=1, max_size=6).filter(lambda word: word.strip("'-"))
SENTENCE = st.lists(WORD, min_size=1, max_size=12)

# --- marks ---------------------------------------------------------------------------------------


def test_marks_stand_as_words_beside_their_pieces() -> None:
    text = "I poured water into the cup until it was full."
    marks = [(Span(20, 27), "*"), (Span(34, 36), "#")]
    wanted = "I poured water into * the cup * until # it # was full."
    assert mark_spans(text, marks) == mark_spans(text, marks[::-1]) == wanted


def test_one_piece_may_be_inside_of_another() -> None:
    text = "and their mothers are worried"
    outer, inner, tail = Span(4, 17), Span(4, 9), Span(10, 17)
    wanted = "and * # their # mothers * are worried"
    assert mark_spans(text, [(outer, "*"), (inner, "#")]) == wanted
    assert mark_spans(text, [(inner, "#"), (outer, "*")]) == wanted
    assert mark_spans(text, [(outer, "*"), (tail, "#")]).endswith(
        "* their # mothers # * are worried"
    )


@given(SENTENCE, st.data())
def test_without_the_marks_the_text_is_as_it_was(words: list[str], data: st.DataObject) -> None:
    first, second = (sorted(data.draw(st.tuples(*[st.integers(0, len(words))] * 2))) for _ in "12")
    text, marks = " ".join(words), []
    for (start, stop), mark in ((first, "*"), (second, "#")):
        if start < stop:
            begin = len(" ".join(words[:start])) + (start > 0)
            marks.append((Span(begin, len(" ".join(words[:stop]))), mark))
    marked = mark_spans(text, marks).split(" ")
    assert [word for word in marked if word not in "*#"] == words
    assert marked.count("*") + marked.count("#") == 2 * len(marks)


# --- words by their number -----------------------------------------------------------------------


@given(SENTENCE, st.data())
def test_words_are_found_by_their_number(words: list[str], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(words) - 1))
    count = data.draw(st.integers(1, len(words) - index))
    text, wanted = " ".join(words), " ".join(words[index : index + count])
    start, stop = find_words(text, wanted.upper(), index)
    assert text[start:stop] == wanted
    assert start == len(" ".join([*words[:index], ""]))


@pytest.mark.parametrize(
    ("text", "words", "index", "found"),
    [
        ("He saw the old man .", "The old\nman", 2, "the old man"),  # a capital, a line end
        ('Good for him," he said.', "him", 2, "him"),  # a punctuation mark behind it
        ("Then he saw him", "him.", 3, "him"),  # one that the text has not
        ("He met Mr. Bond", "Mr.", 2, "Mr."),  # one that it has
        ("Emma's mother left", "Emma", 0, "Emma"),
        ("want to use it , but it", "it", 2, "it"),  # a word late
        ("they scold them", "they", 1, "they"),  # a word early
    ],
)
def test_words_as_the_files_have_them(text: str, words: str, index: int, found: str) -> None:
    start, stop = find_words(text, words, index)
    assert text[start:stop] == found


@pytest.mark.parametrize(
    ("words", "index", "message"),
    [
        ("pencil", 1, "must have 'pencil' as word 1, got 'book'"),
        ("the pencil", 0, "must have 'the pencil' as word 0, got 'The book'"),
        ("costs", 4, "must have 'costs' as word 4, got 'than'"),  # two words away
        ("boo", 1, "must have 'boo' as word 1, got 'book'"),  # a part of a word
        ("book", -3, "must have 'book' as word -3, got a text of 7 words"),
        ("book", 99, "must have 'book' as word 99, got a text of 7 words"),
    ],
)
def test_words_that_are_not_there(words: str, index: int, message: str) -> None:
    with pytest.raises(WrongSpanError) as caught:
        find_words("The book costs more than a computer", words, index)
    assert str(caught.value) == message


# --- words by their characters -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("Room and board.", 9, 14),
        ("'B' grade doesn't suffice", 10, 14),
        ("Hold the taxi.", 0, 4),
        ("the two-way street", 4, 7),
        ("all", 0, 3),
    ],
)
def test_whole_words(text: str, start: int, stop: int) -> None:
    assert check_word(text, Span(start, stop)) == (start, stop)


@pytest.mark.parametrize(
    ("start", "stop", "message"),
    [
        (8, 14, "must have whole words from 8 to 14, got ' board'"),
        (9, 13, "must have whole words from 9 to 13, got 'boar'"),
        (10, 14, "must have whole words from 10 to 14, got 'oard'"),
        (9, 15, "must have whole words from 9 to 15, got 'board.'"),
        (9, 9, "must have a span within 0 and 15, got 9 to 9"),
        (-6, -1, "must have a span within 0 and 15, got -6 to -1"),
        (9, 16, "must have a span within 0 and 15, got 9 to 16"),
    ],
)
def test_pieces_that_are_no_words(start: int, stop: int, message: str) -> None:
    with pytest.raises(WrongSpanError) as caught:
        check_word("Room and board.", Span(start, stop))
    assert str(caught.value) == message
