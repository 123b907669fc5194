"""The positions of a streaming query, and its checkpoint, which shows which batches are durable.

Spark reports a finished batch to the source one batch late, and never reports the last one (see ``stream_reader``). The
checkpoint's files show it at once. Spark writes ``offsets/N``, with the end of batch N, before the batch runs, and
``commits/N`` as soon as the batch is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import OptionError


@dataclass(frozen=True)
class Offsets:
    """A position of a query, which Spark keeps as JSON and compares as text.

    ``next``: by topic, the first offset to read. ``generations``: by topic, the group's registration generation.
    ``query``: the name of a query that reads for a group. It stays the same after a restart from the checkpoint.
    """

    next: Mapping[str, int]
    generations: Mapping[str, int] = field(default_factory=dict)
    query: str = ""

    def json(self) -> dict[str, Any]:
        """Return the position as Spark keeps it. Without a group, it contains only the topics."""
        found: dict[str, Any] = {"topics": dict(sorted(self.next.items()))}
        if self.query:
            found["lives"] = dict(sorted(self.generations.items()))
            found["query"] = self.query
        return found

    def above(self, topic: str) -> int:
        """Return the offset above which nothing is read yet: 0 for a new topic."""
        return self.next.get(topic, 1) - 1

    def moved(self, next: Mapping[str, int], generations: Mapping[str, int]) -> Offsets:
        return replace(self, next={**self.next, **next}, generations={**self.generations, **generations})


def parsed(value: Mapping[str, Any]) -> Offsets:
    """Return the position from the value that ``json`` returned. Raises ``OptionError`` for any other checkpoint."""
    topics = value.get("topics")
    if not isinstance(topics, Mapping) or not all(isinstance(each, int) for each in topics.values()):
        raise OptionError(
            f"the checkpoint does not belong to format mqueue, its offset is {dict(value)!r}: start with a new"
            " checkpointLocation"
        )
    return Offsets(topics, value.get("lives", {}), value.get("query", ""))


class Checkpoint:
    """The checkpoint at ``location``, a path or a URI. Raises ``OptionError`` if pyarrow cannot open the URI."""

    def __init__(self, location: str) -> None:
        import pyarrow as pa
        from pyarrow import fs

        self._location, self._fs = location, fs
        if local := re.fullmatch("(?:file:(?://)?)?(/.*|[^:]*)", location):
            self._system, folder = fs.LocalFileSystem(), local[1] or "."
        else:
            try:
                self._system, folder = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", location))
            except (pa.ArrowException, OSError, ValueError) as error:
                raise OptionError(
                    f"option 'checkpointLocation' is {location!r}, but pyarrow cannot access it ({error}): leave it"
                    " out. The group is then done with a batch when Spark asks for the next one"
                ) from error
        self._folder = folder.rstrip("/")

    def _names(self, folder: str) -> Iterator[str]:
        selector = self._fs.FileSelector(f"{self._folder}/{folder}", allow_not_found=True)
        return (info.base_name for info in self._system.get_file_info(selector))

    def _read(self, path: str) -> bytes:
        with self._system.open_input_stream(f"{self._folder}/{path}") as file:
            return bytes(file.read())

    def durable(self, query: str) -> Offsets | None:
        """Return the end of the query's newest durable batch; None if there is none. Raises ``OSError``."""
        newest = max((int(name) for name in self._names("commits") if name.isdecimal()), default=None)
        if newest is not None:
            text = self._read(f"offsets/{newest}").decode()
            for found in _objects(text):
                if found.get("query") == query and "topics" in found:
                    return parsed(found)
        return None

    def check(self, query: str) -> None:
        """Raise ``OptionError`` if no batch of the query is durable here."""
        cause: OSError | None = None
        try:
            if self.durable(query) is not None:
                return
        except OSError as error:
            cause = error
        raise OptionError(
            f"option 'checkpointLocation' is {self._location!r}, but this query's batches are not recorded there:"
            " give the reader the same text as the writer, with the scheme if it is not a local path"
        ) from cause


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text's lines, and in the strings of these objects: the layout may change."""
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
            for each in value.values():
                if isinstance(each, str):
                    yield from _objects(each)
