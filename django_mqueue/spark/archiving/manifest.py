"""What an archive says of itself, as JSON: that it is one, and for each batch what belongs to it.

Read strictly: a manifest that is not whole, or of a version that this code does not know, is an error, because what is
read from it decides what may be deleted from the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..errors import ArchiveError
from ..options import Table
from .layout import TABLES, folder_of, is_manifest, is_within, manifest_name

FORMAT = 1
"""Of the folder and its manifests."""

SCHEMA = 1
"""Of the columns. A newer one only adds columns; files of an older one have null there."""


@dataclass(frozen=True)
class FileEntry:
    """A file: ``path`` relative to the archive, offsets of its first and last row, ``date`` of publication in UTC."""

    path: str
    rows: int
    first: int
    last: int
    date: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """What a manifest adds to one table: all above one offset and up to another, in these files."""

    above: int
    upto: int
    rows: int
    files: tuple[FileEntry, ...] = ()


@dataclass(frozen=True)
class Last:
    """A message by which a log is known again."""

    offset: int
    id: str


@dataclass(frozen=True)
class Manifest:
    """One batch of a topic, or a compaction of several, from batch ``since`` to ``batch``.

    ``compaction``: its number among those of the topic, 0 for a batch. ``replaces``: names of manifests that do not
    count any more, if this one does (see ``counting``). ``position``: up to where the group is done once this is there;
    ``life`` is its registration's. ``columns``: by table, names and Arrow's types. Times are ISO 8601 in UTC.
    ``last``: the last message that the archive has with this one; None in manifests of earlier versions.
    """

    topic: str
    group: str
    batch: int
    life: int
    position: int
    tables: Mapping[Table, Part]
    columns: Mapping[Table, Mapping[str, str]]
    created_at: str
    since: int | None = None
    replaces: tuple[str, ...] = ()
    compaction: int = 0
    last: Last | None = None
    schema: int = SCHEMA
    format: int = FORMAT

    @property
    def name(self) -> str:
        return manifest_name(self.batch, self.compaction)

    def json(self) -> bytes:
        return _written({**asdict(self), "name": self.name})


@dataclass(frozen=True)
class Marker:
    """Of the whole folder. ``database``: the name of the one that the messages come from."""

    id: str
    database: str
    created_at: str
    format: int = FORMAT
    archive: str = field(default="django_mqueue", init=False)

    def json(self) -> bytes:
        return _written(asdict(self))


def read_marker(data: bytes, where: str) -> Marker:
    """Raises ``ArchiveError`` for what is no marker, or of a newer format."""
    value = _Value(_parsed(data, where), where)
    if value.take("archive", str) != "django_mqueue":
        raise ArchiveError(f"{where} is not the marker of an archive of this package")
    _check_version(value, "format", FORMAT)
    return Marker(value.take("id", str), value.take("database", str), value.take("created_at", str))


def read_manifest(data: bytes, where: str) -> Manifest:
    """Raises ``ArchiveError``, naming the file (``where``) and what is wrong with it."""
    value = _Value(_parsed(data, where), where)
    _check_version(value, "format", FORMAT)
    _check_version(value, "schema", SCHEMA)
    tables = value.take("tables", dict)
    columns = value.take("columns", dict)
    if set(tables) - set(TABLES):
        raise value.wrong("tables", f"must be some of {', '.join(TABLES)}")
    topic, replaces = value.take("topic", str), tuple(value.take("replaces", list))
    if not topic:
        raise value.wrong("topic", "must not be empty")
    if not all(isinstance(name, str) and is_manifest(f"{name}.json") for name in replaces):
        raise value.wrong("replaces", "must hold names of manifests")
    found = Manifest(
        topic=topic,
        group=value.take("group", str),
        batch=value.number("batch"),
        life=value.number("life"),
        position=value.number("position"),
        tables={
            table: _part(_Value(tables[table], f"{where}: {table}"), f"{table}/{folder_of(topic)}")
            for table in TABLES
            if table in tables
        },
        columns={table: dict(columns[table]) for table in TABLES if table in columns},
        created_at=value.take("created_at", str),
        since=None if value.given.get("since") is None else value.number("since"),
        replaces=replaces,
        compaction=value.number("compaction"),
        last=_last(value),
        schema=value.number("schema"),
    )
    if not where.endswith(f"/{found.name}.json"):
        raise ArchiveError(f"{where}: is the manifest {found.name}, under another one's name")
    return found


def _last(value: _Value) -> Last | None:
    if value.given.get("last") is None:
        return None
    found = _Value(value.given["last"], f"{value.where}: last")
    return Last(found.number("offset"), found.take("id", str))


def _part(value: _Value, folder: str) -> Part:
    """What is in a table; its files lie in ``folder``, wherever the manifest says they do."""
    files = tuple(_entry(_Value(each, value.where)) for each in value.take("files", list))
    part = Part(value.number("above"), value.number("upto"), value.number("rows"), files)
    if part.upto < part.above:
        raise value.wrong("upto", f"must not be below above, which is {part.above}")
    if sum(entry.rows for entry in files) != part.rows:
        raise value.wrong("rows", f"but its files have {sum(entry.rows for entry in files)}")
    for entry in files:
        if not is_within(entry.path, folder):
            raise ArchiveError(f"{value.where}: file {entry.path[:200]!r} must lie in the folder {folder}")
        if not part.above < entry.first <= entry.last <= part.upto:
            raise ArchiveError(
                f"{value.where}: file {entry.path} has offsets {entry.first} to {entry.last}, but must lie above"
                f" {part.above} and up to {part.upto}"
            )
    return part


def _entry(value: _Value) -> FileEntry:
    return FileEntry(
        value.take("path", str),
        value.number("rows"),
        value.number("first"),
        value.number("last"),
        value.take("date", str),
        value.number("bytes"),
        value.take("sha256", str),
    )


class _Value:
    """An object of JSON whose parts are looked at before they are used."""

    def __init__(self, given: Any, where: str) -> None:
        if not isinstance(given, dict):
            raise ArchiveError(f"{where}: must hold a JSON object, not {type(given).__name__}")
        self.given, self.where = given, where

    def take(self, name: str, kind: type) -> Any:
        if name not in self.given:
            raise ArchiveError(f"{self.where}: {name!r} is missing")
        value = self.given[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.wrong(name, f"must be of type {kind.__name__}")
        return value

    def number(self, name: str) -> int:
        value: int = self.take(name, int)
        if not 0 <= value < 1 << 63:
            raise self.wrong(name, "must be from 0 to 2^63-1")
        return value

    def wrong(self, name: str, why: str) -> ArchiveError:
        return ArchiveError(f"{self.where}: {name!r} is {str(self.given[name])[:100]}, {why}")


def _check_version(value: _Value, name: str, known: int) -> None:
    found = value.number(name)
    if not 1 <= found <= known:
        raise ArchiveError(
            f"{value.where}: {name} {found} is of a newer version of this package, which knows {name}s up to {known}:"
            " upgrade it"
        )


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ArchiveError(f"{where}: is not JSON ({error})") from None


def _written(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def counting(found: Sequence[Manifest]) -> list[Manifest]:
    """Those of a topic that count, by batch: the newest compaction, and all that no newer one which counts replaces.

    Each compaction has taken the next number when it was written, which only one can do, and knew all below it. So what
    comes late, under a number that was free again because another one's manifest was deleted, is replaced already.
    """
    kept, replaced = [], set[str]()
    for manifest in sorted(found, key=lambda manifest: manifest.compaction, reverse=True):
        if manifest.name not in replaced:
            kept.append(manifest)
            replaced.update(manifest.replaces)
    return sorted(kept, key=lambda manifest: (manifest.batch, manifest.compaction))


def now_told() -> str:
    """As manifests have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
