"""The tables of a report, as texts for a terminal and for the HTML page."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress
from typing import TYPE_CHECKING, Any

from ...drawing.scales import count, duration
from ...printing import for_terminal
from .figures import StepFigures, Times

if TYPE_CHECKING:
    from .result import Report

STEPS_SHOWN = 48
"""The maximum number of steps for each group: the newest."""

_PAGE_ONLY = {"Without a key", "In flight", "For retry"}
"""Columns for which a terminal is too narrow."""

_PERCENTILES = "Times are p50 / p95 / p99."


@dataclass(frozen=True)
class Section:
    """A table as texts. ``texts``: the columns that are not numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Collection[str]
    note: str = ""


def text(report: Report, width: int) -> str:
    """Return the report for a terminal with ``width`` columns. Tables without rows are left out."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = io.StringIO()
    console = Console(
        file=out, width=width, no_color=True, force_terminal=False, highlight=False, markup=False, emoji=False
    )
    console.print(heading(report))
    for section in sections(report):
        title = f"{section.title}. {section.note}" if section.note else section.title
        table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
        shown = [column not in _PAGE_ONLY for column in section.columns]
        for column in compress(section.columns, shown):
            table.add_column(column, justify="left" if column in section.texts else "right", overflow="fold")
        for row in section.rows:
            table.add_row(*map(Text, compress(row, shown)))
        if section.rows:
            console.print(table)
    for note in report.notes:
        console.print(note)
    return out.getvalue()


def heading(report: Report) -> str:
    """Return a line that says when the report was made, and from which sources."""
    sources = [
        *(["the archive"] if report.archive is not None else ()),
        *(["the live log"] if report.live else ()),
    ]
    since = f", from {_time(report.since)}" if report.since else ""
    until = f", up to {_time(report.until)}" if report.until else ""
    return f"Read {' and '.join(sources)} at {_time(report.at)} UTC{since}{until}. All times are UTC."


def sections(report: Report) -> Iterator[Section]:
    """Yield the tables: topics, groups, steps, errors, keys and work items."""
    yield _section(
        "Topics", "Topic, Published, For one group, Redriven, Keys, Without a key, First, Last", ("Topic",),
        ((one.topic, one.published, one.targeted, one.redriven, one.keys, one.without_key, one.first_published,
          one.last_published) for one in report.topics),
    )  # fmt: skip
    yield _section(
        "Groups", "Topic, Group, Published, Finished, Dead, Failures, Attempts, First delivery, Ack, In flight,"
        " For retry, Lag", ("Topic", "Group"),
        ((one.topic, one.group, one.published, *([None] * 8 if one.reads_log else (
            one.finished, one.dead, one.failures, one.attempts, one.first_delivery, one.ack, one.in_flight, one.waiting
        )), one.lag) for one in report.groups),
        _PERCENTILES,
    )  # fmt: skip
    steps = _newest(report.steps)
    older = len(report.steps) - len(steps)
    yield _section(
        f"By {report.by}",
        "From, Topic, Group, Published, Finished, Dead, Failures, First delivery, Ack, Backlog",
        ("From", "Topic", "Group"),
        ((one.start, one.topic, one.group or "(none)", one.published, one.finished, one.dead, one.failures,
          one.first_delivery, one.ack, one.backlog) for one in steps),
        _PERCENTILES + (f" {older:,} older rows are left out; JSON and CSV have all of them." if older else ""),
    )  # fmt: skip
    yield _section(
        "Errors", "Topic, Group, Error, Count, First, Last, Example", ("Topic", "Group", "Error", "Example"),
        ((one.topic, one.group, one.error, one.count, one.first, one.last, one.example) for one in report.errors),
    )  # fmt: skip
    yield _section(
        "Hottest keys", "Topic, Key, Published, Share", ("Topic", "Key"),
        ((one.topic, one.key, one.published, f"{one.share:.1%}") for one in report.keys),
    )  # fmt: skip
    yield _section(
        "Work items, by week and kind", "Worklist, Kind, Week from, Finished, By handlers, Share, Mean time",
        ("Worklist", "Kind", "Week from"),
        ((one.topic.partition(".")[2], one.kind, f"{one.week:%Y-%m-%d}", one.finished, one.by_handler,
          f"{one.share:.0%}", duration(one.mean_seconds * 1000)) for one in report.items),
    )  # fmt: skip


def _section(
    title: str, columns: str, texts: Collection[str], rows: Iterable[Sequence[Any]], note: str = ""
) -> Section:
    return Section(title, columns.split(", "), [[_cell(value) for value in row] for row in rows], texts, note)


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return count(value)
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, Times):
        points = (value.p50, value.p95, value.p99)
        return " / ".join(duration(max(0, point)) for point in points if point is not None)
    return "" if value is None else for_terminal(value)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def _newest(steps: Sequence[StepFigures]) -> list[StepFigures]:
    """Return the newest steps of each group, in the same order."""
    seen = Counter[tuple[str, str | None]]()
    found = []
    for one in reversed(steps):
        seen[one.topic, one.group] += 1
        if seen[one.topic, one.group] <= STEPS_SHOWN:
            found.append(one)
    return found[::-1]
