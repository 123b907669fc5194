"""A report as JSON, and as CSV files."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import private
from .figures import ErrorFigures, GroupTotals, KeyFigures, StepFigures, Times, TopicTotals

if TYPE_CHECKING:
    from .result import Report

FORMAT = "django_mqueue.report"
VERSION = 1
TABLES = ("topics", "groups", "steps", "errors", "keys")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def json_of(report: Report) -> str:
    content = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(report)}
    return json.dumps(content, default=_plain, indent=2, ensure_ascii=True)


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    raise TypeError(f"{value!r} is in a report")


def moment(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def write_csv(report: Report, folder: str | os.PathLike[str]) -> list[str]:
    """Write a CSV file for each table. Return the names of the files."""
    place = Path(folder)
    place.mkdir(private.FOLDER, parents=True, exist_ok=True)
    for name in TABLES:
        kind = _KINDS[name]
        with open(
            place / f"{name}.csv",
            "w",
            newline="",
            encoding="utf-8",
            errors="backslashreplace",
            opener=private.overwrite,
        ) as file:
            writer = csv.writer(file)
            writer.writerow(columns(kind))
            writer.writerows([_cell(value) for value in values(row)] for row in getattr(report, name))
    return [f"{name}.csv" for name in TABLES]


_KINDS: dict[str, Any] = dict(
    zip(TABLES, (TopicTotals, GroupTotals, StepFigures, ErrorFigures, KeyFigures), strict=True)
)
_TIMES = tuple(field.name for field in dataclasses.fields(Times))


def columns(kind: Any) -> list[str]:
    """Return the columns of a table. Times become four columns, such as ``ack_p50_ms`` and ``ack_of``."""
    found = []
    for field in dataclasses.fields(kind):
        if field.name in ("first_delivery", "ack"):
            found += [f"{field.name}_{name}" + ("" if name == "of" else "_ms") for name in _TIMES]
        else:
            found.append(field.name)
    return found


def values(row: Any) -> Iterator[Any]:
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if isinstance(value, Times):
            yield from (getattr(value, name) for name in _TIMES)
        else:
            yield value


def _cell(value: Any) -> Any:
    """Return the text for a cell. A text that a spreadsheet would run as a formula begins with an apostrophe."""
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value
