"""Where things lie in the folder of an archive; all paths are relative to it, with slashes between their parts.

No folder is named ``key=value``: tools that know Hive's layout would take that for a column.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from urllib.parse import quote, unquote

from ..options import Table

MARKER = "mqueue-archive.json"
"""Says that a folder is an archive."""

MANIFESTS = "manifests"
TABLES: tuple[Table, ...] = ("messages", "dead_letters", "deliveries")
FOLDER_MAX = 200
"""Bytes of a folder's name: file systems allow 255."""

_CUT = "~"
"""Stands in no other quoted name."""

_NAME = re.compile(r"(?:compaction-)?[0-9]{10}\.json")


def folder_of(topic: str) -> str:
    """A topic as a folder's name: quoted as in URLs, and cut, with a digest behind it, where that is too long.

    Does not begin with a dot or an underscore, which some readers skip.
    """
    name = quote(topic, safe="").replace("~", "%7E")
    if name[0] in "._":
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) <= FOLDER_MAX:
        return name
    cut = re.sub(r"%[0-9A-F]?$", "", name[: FOLDER_MAX - 40])
    return f"{cut}{_CUT}{blake2b(topic.encode(), digest_size=16).hexdigest()}"


def topic_of(folder: str) -> str | None:
    """The topic of such a folder; None where the name was cut, and only a manifest tells."""
    return None if _CUT in folder else unquote(folder)


def manifests_of(topic: str) -> str:
    return f"{MANIFESTS}/{folder_of(topic)}"


def manifest_path(topic: str, name: str) -> str:
    return f"{manifests_of(topic)}/{name}.json"


def manifest_name(batch: int, compaction: int = 0) -> str:
    """Of a batch; or of the topic's compaction of that number, from 1 on."""
    return f"compaction-{compaction:010d}" if compaction else f"{batch:010d}"


def is_manifest(file: str) -> bool:
    """Return whether a file's name is that of a manifest."""
    return _NAME.fullmatch(file) is not None


def is_within(path: str, folder: str) -> bool:
    """Whether a path from a manifest lies in a folder, by its name alone: it leads to no other place."""
    parts = path.split("/")
    plain = not any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts)
    return plain and path.startswith(f"{folder}/")


def data_path(table: Table, topic: str, date: str, batch: int, unique: str, number: int) -> str:
    """A new file; ``date`` is like 2026-11-21, in UTC. ``unique`` is another for each attempt of each task."""
    return f"{table}/{folder_of(topic)}/{date}/{batch:010d}-{unique}-{number}.parquet"


def by_arrow(place: str) -> bool:
    """Whether Arrow goes to an archive there, as far as the name tells: then no rows pass through Spark's Java."""
    scheme, separator, _ = place.partition("://")
    return not separator or scheme in ("file", "s3", "s3a", "s3n", "gs", "gcs")
