"""A report as text tables, for a terminal."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...drawing.printing import for_terminal
from ...drawing.scales import count, duration
from ..errors import NoSpark
from .figures import ErrorFigures, GroupTotals, KeyFigures, StepFigures, Times, TopicTotals

if TYPE_CHECKING:
    from rich.console import Console

    from .result import Report

STEPS_SHOWN = 48
"""The maximum number of steps for each group: the newest."""


def text(report: Report, width: int) -> str:
    if find_spec("rich") is None:
        raise NoSpark("rich is not installed: install this package with its extra spark")
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=width, no_color=True, force_terminal=False, highlight=False, markup=False
    )
    for line in heading(report):
        console.print(line)
    _table(
        console,
        "Topics",
        "topic, published, for one group, sent back, keys, first, last",
        map(_topic, report.topics),
    )
    columns = "topic, group, published, finished, dead, failures, attempts, first delivery, ack, lag"
    _table(console, "Groups (p50 / p95 / p99)", columns, map(_group, report.groups), texts={0, 1})
    steps, left_out = newest(report.steps, STEPS_SHOWN)
    columns = "from, topic, group, published, finished, dead, failures, first delivery, ack, backlog"
    _table(console, f"By {report.by} (p50 / p95 / p99)", columns, map(_step, steps), texts={0, 1, 2})
    if left_out:
        console.print(f"{left_out:,} older rows are left out here; JSON and CSV have all of them.\n")
    _table(
        console,
        "Errors",
        "topic, group, error, count, last, the newest",
        map(_error, report.errors),
        texts={0, 1, 2, 5},
    )
    _table(console, "Hottest keys", "topic, key, published, share", map(_key, report.keys), texts={0, 1})
    for note in report.notes:
        console.print(note)
    return out.getvalue()


def heading(report: Report) -> list[str]:
    """Return lines that say when the report was made, and from which sources."""
    what = {
        (True, True): "the archive and the live log",
        (True, False): "the archive",
        (False, True): "the live log",
    }[report.archive is not None, report.live]
    time = ""
    if report.since:
        time += f", from {said(report.since)}"
    if report.until:
        time += f", up to {said(report.until)}"
    return [f"Read {what} at {said(report.at)} UTC{time}. All times are UTC."]


def newest(steps: Sequence[StepFigures], most: int) -> tuple[list[StepFigures], int]:
    """Return the last ``most`` steps of each group, and the number of steps that are left out."""
    seen: dict[tuple[str, str | None], int] = {}
    found = []
    for one in reversed(steps):
        pair = one.topic, one.group
        seen[pair] = seen.get(pair, 0) + 1
        if seen[pair] <= most:
            found.append(one)
    return found[::-1], len(steps) - len(found)


def said(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def times(found: Times) -> str:
    if found.p50 is None or found.p95 is None or found.p99 is None:
        return ""
    return " / ".join(duration(max(0, one)) for one in (found.p50, found.p95, found.p99))


def optional(number: int | None) -> str:
    return "" if number is None else count(number)


def group_of(name: str | None) -> str:
    return "(none)" if name is None else for_terminal(name)


def _topic(one: TopicTotals) -> Sequence[str]:
    numbers = (count(number) for number in (one.published, one.targeted, one.sent_back, one.keys))
    return for_terminal(one.topic), *numbers, said(one.first_published), said(one.last_published)


def _error(one: ErrorFigures) -> Sequence[str]:
    return (
        for_terminal(one.topic), for_terminal(one.group), for_terminal(one.error), count(one.count),
        said(one.last), for_terminal(one.example),
    )  # fmt: skip


def _key(one: KeyFigures) -> Sequence[str]:
    return for_terminal(one.topic), for_terminal(one.key), count(one.published), f"{one.share:.1%}"


def _group(one: GroupTotals) -> Sequence[str]:
    ended = (count(number) for number in (one.finished, one.dead, one.failures, one.attempts))
    if one.reads_log:
        ended = ("" for _ in range(4))
    return (
        for_terminal(one.topic), for_terminal(one.group), count(one.published), *ended,
        times(one.first_delivery), times(one.ack),
        optional(one.lag),
    )  # fmt: skip


def _step(one: StepFigures) -> Sequence[str]:
    numbers = (count(number) for number in (one.published, one.finished, one.dead, one.failures))
    return (
        said(one.start), for_terminal(one.topic), group_of(one.group), *numbers,
        times(one.first_delivery), times(one.ack),
        optional(one.backlog),
    )  # fmt: skip


def _table(
    console: Console, title: str, columns: str, rows: Iterable[Sequence[str]], texts: Collection[int] = (0,)
) -> None:
    """Print a table if it has rows. ``texts``: the columns that are not numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for place, column in enumerate(columns.split(", ")):
        table.add_column(column, justify="left" if place in texts else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if table.row_count:
        console.print(table)
