"""QMSum: which passage of a meeting is asked for?"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jat_graph.tasks.base import ChoiceTask
from jat_graph.tasks.sources import file_lines, find_file, plain_or_gzipped, stratified_split

if TYPE_CHECKING:
    from datasets import Dataset

_SHARES = {"validation": 0.2, "test": 0.2}
_MARKS = re.compile(r"\{\w+\}\s*")  # {vocalsound}, {disfmarker}: up to half of what is said

logger = logging.getLogger(__name__)


class _Query(NamedTuple):
    """What is asked about a meeting, and the turns that tell it, in one or more spans."""

    text: str
    spans: list[range]


class _Meeting(NamedTuple):
    """What was said, turn by turn, and what is asked about it."""

    turns: list[str]
    queries: list[_Query]


@dataclass(frozen=True, kw_only=True)
class QmsumTask(ChoiceTask):
    """Choose the passage of a meeting that a question asks for, out of four of that meeting.

    A meeting is cut into passages of whole turns and nearly one length. The right one has most of
    what is marked for the question, of its longest span where there are several; the others have
    nothing of that, and are drawn once, as is the order. Questions about meetings with too few
    others are left out, and a warning says how many. Those that ask for a summary of the whole
    meeting are not among them.

    Of the published files ``val.jsonl`` alone is read, 35 meetings. A fifth of the meetings is
    drawn for validation and another for the test, always the same, with all their questions. Marks
    as ``{vocalsound}`` are not part of the text.

    Args:
        characters: Characters of a passage, about. (default: 6,000)

    Reference:
        Zhong et al., *QMSum: A New Benchmark for Query-based Multi-domain Meeting Summarization*,
        NAACL 2021, whose first step, to find what a query asks for, is made a choice here.
    """

    name: str = "qmsum"
    splits: tuple[str, ...] = ("train", "validation", "test")
    primary_metric: str = "accuracy"
    source: str | None = "meeting"
    num_choices: int = 4
    characters: int = 6000

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the meetings, and draw which are of which split."""
        from datasets import Dataset

        homes, names = ("qmsum", "qmsum/ALL", "ALL"), plain_or_gzipped("val.jsonl")
        path = find_file(data_dir, self.name, homes, names)
        meetings = [_read_meeting(place, line) for place, line in file_lines(path)]
        rows = [list(self._rows(*numbered)) for numbered in enumerate(meetings)]
        asked, kept = sum(len(meeting.queries) for meeting in meetings), sum(map(len, rows))
        if not kept:
            wanted = f"questions about meetings of {self.num_choices} passages and more"
            raise ValueError(f"{path} must hold {wanted}, got none")
        if kept < asked:
            logger.warning(
                "%s: left out %d of %d questions, about meetings that have fewer than %d other "
                "passages",
                *(path, asked - kept, asked, self.num_choices - 1),
            )
        drawn = stratified_split([0] * len(rows), _SHARES)
        return {
            split: Dataset.from_list([row for number in drawn[split] for row in rows[number]])
            for split in splits
        }

    def _rows(self, number: int, meeting: _Meeting) -> Iterator[dict[str, Any]]:
        """Yield the questions about a meeting that has passages enough."""
        homes = _homes(meeting.turns, self.characters)
        passages: dict[int, list[str]] = defaultdict(list)
        for home, turn in zip(homes, meeting.turns, strict=True):
            passages[home].append(turn)
        for query in meeting.queries:
            shares = [_shares(span, meeting.turns, homes) for span in query.spans]
            (right, _), *_ = max(shares, key=Counter.total).most_common(1)
            others = sorted(passages.keys() - set().union(*shares))
            if len(others) < self.num_choices - 1:
                continue
            draw = random.Random(f"{number} {query.text}")  # a text is hashed the same everywhere
            chosen = [right, *draw.sample(others, self.num_choices - 1)]
            draw.shuffle(chosen)
            yield {
                "meeting": number,
                "prompt": query.text,
                "choices": ["\n".join(passages[home]) for home in chosen],
                "label": chosen.index(right),
            }


def _homes(turns: list[str], characters: int) -> list[int]:
    """Which passage each turn begins in; all passages are as long, or nearly."""
    *starts, total = accumulate(map(len, turns), initial=0)
    count = max(1, round(total / characters))
    return [start * count // max(1, total) for start in starts]


def _shares(span: range, turns: list[str], homes: list[int]) -> Counter[int]:
    """How many characters of a span each passage has."""
    shares: Counter[int] = Counter()
    for turn in span:
        shares[homes[turn]] += len(turns[turn])
    return shares


def _read_meeting(place: str, line: Mapping[str, Any]) -> _Meeting:
    try:
        turns = [
            f"{turn['speaker']}: {_MARKS.sub('', turn['content']).strip()}"
            for turn in line["meeting_transcripts"]
        ]
        queries = [
            _Query(entry["query"].strip(), [_read_span(*s) for s in entry["relevant_text_span"]])
            for entry in line["specific_query_list"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        got = f"no {error}" if isinstance(error, KeyError) else "something else"
        raise ValueError(f"{place} must have the layout of QMSum, got {got}") from None
    for query in queries:
        _check(place, query, len(turns))
    return _Meeting(turns, queries)


def _read_span(first: str, last: str) -> range:
    return range(int(first), int(last) + 1)


def _check(place: str, query: _Query, turns: int) -> None:
    """Refuse a question without text, or whose turns are not there."""
    if not query.text:
        raise ValueError(f"{place}: a query must have text, got none")
    if not query.spans:
        raise ValueError(f"{place}: query {query.text!r} must have relevant turns, got none")
    for span in query.spans:
        if not 0 <= span.start < span.stop <= turns:
            raise ValueError(
                f"{place}: query {query.text!r} must have relevant turns among {turns}, "
                f"got {span.start} to {span.stop - 1}"
            )
