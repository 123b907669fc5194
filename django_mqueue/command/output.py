"""The output of a verb: tables and sentences for people, or one JSON document."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..drawing import scales
from ..printing import for_terminal, on_a_line
from ..stats.results import EXACT, Figure

Row = Mapping[str, Any]

WIDTH_MAX = 200
CELL_MAX = 300
"""Maximum characters of a cell of a table: more than a key or an id can have."""
LINE_MIN, GAP = 24, 3
"""The least width of a cell that is cut, and the width between two columns."""
FIXED = (int, float, Figure, datetime, timedelta, type(None))


class Refused(Exception):
    """The verb cannot be done. The text says why, and what the operator can do."""


class Output:
    """Collects the results of a verb. ``write`` prints a text. ``as_json``: print one JSON document at the end.

    ``problems``: reasons for exit status 1, for example a limit of monitoring that is exceeded. They are reported after
    all results.
    """

    def __init__(self, write: Callable[[str], object], *, as_json: bool = False) -> None:
        self.write, self.as_json = write, as_json
        self.problems: list[str] = []
        self._document: dict[str, Any] = {}
        self._has_table = False

    def table(
        self,
        name: str,
        rows: Sequence[Row],
        *,
        title: str = "",
        empty: str = "none",
        on_a_line: str = "",
        wide: Sequence[str] = (),
    ) -> None:
        """Print a table. Its columns are the keys of the rows.

        ``name``: the key of the list in the JSON document. ``title``: the heading; ``empty``: the text without rows.
        ``on_a_line``: a column whose cells are cut to the space that the other columns leave. ``wide``: columns that
        are left out if the terminal is too narrow, the first one first.
        """
        self._document[name] = rows
        if not self.as_json:
            drawing = drawn(title or _words(name), rows, empty, on_a_line=on_a_line, wide=wide)
            self.write(f"\n{drawing}" if self._has_table else drawing)
            self._has_table = True

    def entries(self, name: str, rows: Sequence[Row], text: Callable[[Row], str]) -> None:
        """Print ``text(row)`` for each row, for rows whose values are too long for a table."""
        self._document[name] = rows
        if not self.as_json:
            for row in rows:
                self.write("")
                self.write("\n".join(map(for_terminal, text(row).split("\n"))))

    def values(self, **values: Any) -> None:
        """Print names with their values, one on each line. Empty values are only in the JSON document."""
        self._document |= values
        if not self.as_json:
            for name, value in values.items():
                if text := as_text(value):
                    self.write(f"{_words(name)}: {for_terminal(text)}")

    def add_to_json(self, **values: Any) -> None:
        """Add values to the JSON document, and print nothing."""
        self._document |= values

    def say(self, text: str) -> None:
        """Print a sentence. The JSON document does not contain it."""
        if not self.as_json:
            self.write(for_terminal(text))

    def problem(self, text: str) -> None:
        self.problems.append(on_a_line(text))

    def end(self) -> None:
        """Print the JSON document, if one was asked for."""
        if self.as_json:
            document = {**self._document, **({"problems": self.problems} if self.problems else {})}
            self.write(json.dumps(_plain(document), cls=_Encoder, indent=2))


def drawn(
    title: str, rows: Sequence[Row], empty: str = "none", *, on_a_line: str = "", wide: Sequence[str] = ()
) -> str:
    """Return a table as text, as wide as the terminal. For the arguments see ``Output.table``."""
    if not rows:
        return f"{title}: {empty}"
    width = min(shutil.get_terminal_size((120, 24)).columns, WIDTH_MAX)
    columns = [_Column(name, rows) for name in dict.fromkeys(name for row in rows for name in row)]
    for name in wide:
        if _width(columns, excluded=on_a_line) > width - (LINE_MIN if on_a_line else 0):
            columns = [column for column in columns if column.name != name]
    out = io.StringIO()
    console = Console(
        file=out, width=width - 1, no_color=True, force_terminal=False, highlight=False, markup=False
    )
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for column in columns:
        justify: Any = "right" if column.are_numbers else "left"
        is_whole = column.is_fixed or column.name == on_a_line
        table.add_column(column.heading, justify=justify, overflow="fold", no_wrap=is_whole)
        if column.name == on_a_line:
            column.cut(max(width - _width(columns, excluded=on_a_line), LINE_MIN))
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    console.print(table)
    return "\n".join([title, *(f" {line}".rstrip() for line in out.getvalue().splitlines())])


class _Column:
    """A column of a table. ``is_fixed``: its cells have no line breaks, because they are numbers or times."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        values = [row.get(name) for row in rows]
        self.name = name
        self.are_numbers = all(
            isinstance(value, (int, float, Figure, type(None))) and not isinstance(value, bool)
            for value in values
        )
        self.is_fixed = all(isinstance(value, FIXED) for value in values)
        self.heading = _words(name).replace(" ", "\n") if self.is_fixed else _words(name)
        texts = [on_a_line(as_text(value)) for value in values]
        self.cells = [text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…" for text in texts]

    @property
    def width(self) -> int:
        return max(map(cell_len, [*self.heading.splitlines(), *self.cells]))

    def cut(self, width: int) -> None:
        self.cells = [
            cell if cell_len(cell) <= width else f"{set_cell_size(cell, width - 1)}…" for cell in self.cells
        ]


def _width(columns: Sequence[_Column], *, excluded: str = "") -> int:
    """Return the width of a table without line breaks. The column ``excluded`` counts only as a gap."""
    return 1 + sum((0 if column.name == excluded else column.width) + GAP for column in columns)


def as_text(value: Any) -> str:
    """Return a value as text for people."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Figure():
            return f"{value.value:,}" + ("" if value.how == EXACT else "+")
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
        case timedelta():
            return scales.duration(value / timedelta(milliseconds=1))
        case str():
            return value
        case int():
            return f"{value}"
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(as_text, value))
        case _:
            return json.dumps(_plain(value), cls=_Encoder, ensure_ascii=False)


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


class _Encoder(DjangoJSONEncoder):
    def default(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("utf-8", "backslashreplace")
        if isinstance(value, (set, frozenset)):
            return sorted(value)
        return super().default(value)


def _plain(value: Any) -> Any:
    """Return a value for JSON: durations as seconds, figures as numbers with ``how`` if they are not exact."""
    match value:
        case Figure():
            return value.value if value.how == EXACT else {"value": value.value, "how": value.how}
        case timedelta():
            return round(value.total_seconds(), 3)
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return value
