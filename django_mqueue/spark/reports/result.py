"""A report: its tables and notes, and their forms as JSON, CSV, HTML and text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from .figures import ErrorFigures, GroupTotals, KeyFigures, StepFigures, TopicTotals
from .files import json_of, write_csv
from .page import page
from .tables import text


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

    def to_json(self) -> str:
        """Return the whole report as one JSON object."""
        return json_of(self)

    def to_csv(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write one file for each table. Return the names of the files. ``folder`` is created if it is missing.

        A text that a spreadsheet would run as a formula begins with an apostrophe.
        """
        return write_csv(self, folder)

    def to_html(self) -> str:
        """Return the report as one HTML page, which loads nothing."""
        return page(self)

    def to_text(self, width: int = 120) -> str:
        """Return text tables for a terminal with ``width`` columns, without colours."""
        return text(self, width)
