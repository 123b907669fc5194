"""A report: its tables and notes, and their forms as JSON, CSV, HTML and text."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from .. import private
from .figures import (
    PERCENTILES,
    ErrorFigures,
    GroupTotals,
    ItemFigures,
    KeyFigures,
    StepFigures,
    Times,
    TopicTotals,
)
from .page import page
from .tables import text

FORMAT, VERSION = "django_mqueue.report", 1
"""The values of ``format`` and ``version`` in the JSON."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


TABLES = {
    "topics": TopicTotals, "groups": GroupTotals, "steps": StepFigures, "errors": ErrorFigures, "keys": KeyFigures,
    "items": ItemFigures,
}  # fmt: skip


@dataclass(frozen=True)
class Report:
    """A report. All times are UTC.

    * ``at``: when the report was made.
    * ``by``: the length of a step, ``"hour"`` or ``"day"``.
    * ``since`` and ``until``: the requested time.
    * ``archive`` and ``live``: the sources.
    * ``notes``: sentences that a reader needs to understand the numbers.
    """

    at: datetime
    by: str
    since: datetime | None
    until: datetime | None
    archive: str | None
    live: bool
    topics: Sequence[TopicTotals]
    groups: Sequence[GroupTotals]
    steps: Sequence[StepFigures]
    errors: Sequence[ErrorFigures]
    keys: Sequence[KeyFigures]
    notes: Sequence[str] = ()
    items: Sequence[ItemFigures] = ()

    def to_json(self) -> str:
        """Return the whole report as one JSON object."""
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(content, default=_moment, indent=2, ensure_ascii=True)

    def to_csv(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write one file for each table. Return the names of the files. ``folder`` is created if it is missing.

        A text that a spreadsheet would run as a formula begins with an apostrophe.
        """
        path = Path(folder)
        path.mkdir(private.FOLDER, parents=True, exist_ok=True)
        for name, kind in TABLES.items():
            with open(
                path / f"{name}.csv",
                "w",
                newline="",
                encoding="utf-8",
                errors="backslashreplace",
                opener=private.opener,
            ) as file:
                writer = csv.writer(file)
                writer.writerow(_columns(kind))
                writer.writerows([_cell(value) for value in _values(row)] for row in getattr(self, name))
        return [f"{name}.csv" for name in TABLES]

    def to_html(self) -> str:
        """Return the report as one HTML page, which loads nothing."""
        return page(self)

    def to_text(self, width: int = 120) -> str:
        """Return text tables for a terminal with ``width`` columns, without colours."""
        return text(self, width)


def _columns(kind: Any) -> Iterator[str]:
    """Return the columns of a table. Times become four columns, such as ``ack_p50_ms`` and ``ack_of``."""
    for column in fields(kind):
        if column.default_factory is Times:
            yield from (f"{column.name}_p{point}_ms" for point in PERCENTILES)
            yield f"{column.name}_of"
        else:
            yield column.name


def _values(row: Any) -> Iterator[Any]:
    for value in vars(row).values():
        if isinstance(value, Times):
            yield from vars(value).values()
        else:
            yield value


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value


def _moment(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
