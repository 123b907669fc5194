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
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..drawing import scales
from ..drawing.printing import for_terminal, on_a_line
from ..stats.results import EXACT, Figure

Row = Mapping[str, Any]

WIDTH_MAX = 200
CELL_MAX = 200
"""Maximum characters of a cell of a table."""


class Refused(Exception):
    """The verb cannot be done. The text says why, and what the operator can do."""


class Output:
    """Collects the results of a verb. ``write`` prints a text. ``as_json``: print one JSON document at the end.

    ``problems``: reasons for exit status 1, for example a limit of monitoring that is exceeded. All results are printed
    before.
    """

    def __init__(self, write: Callable[[str], object], *, as_json: bool = False) -> None:
        self.write, self.as_json = write, as_json
        self.problems: list[str] = []
        self._document: dict[str, Any] = {}

    def table(self, name: str, rows: Sequence[Row], *, title: str = "", empty: str = "none") -> None:
        """Print a table. Its columns are the keys of the rows.

        ``name``: the key of the list in the JSON document. ``title``: the heading; ``empty``: the text without rows.
        """
        self._document[name] = rows
        if not self.as_json:
            self.write(drawn(title or _words(name), rows, empty))

    def values(self, **values: Any) -> None:
        """Print names with their values, one on each line. Values that are None or "" are only in the JSON document."""
        self._document |= values
        if not self.as_json:
            for name, value in values.items():
                if value not in (None, ""):
                    self.write(f"{_words(name)}: {for_terminal(shown(value))}")

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


def drawn(title: str, rows: Sequence[Row], empty: str = "none") -> str:
    """Return a table as text, as wide as the terminal."""
    if not rows:
        return f"{title}: {empty}"
    width = min(shutil.get_terminal_size((120, 24)).columns, WIDTH_MAX)
    out = io.StringIO()
    console = Console(
        file=out, width=width, no_color=True, force_terminal=False, highlight=False, markup=False
    )
    table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE, pad_edge=False)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    for name in columns:
        numbers = all(isinstance(row.get(name), (int, float, Figure, type(None))) for row in rows)
        table.add_column(_words(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(on_a_line(shown(row.get(name)))[:CELL_MAX]) for name in columns))
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()


def shown(value: Any) -> str:
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
            return ", ".join(map(shown, value))
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
