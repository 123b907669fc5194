"""What the checkpoint of a streaming query says is durable, read beside Spark.

Spark tells a source that a batch is done one batch late, and never of the last one (see ``streaming``). Its files say
it at once: ``offsets/N`` holds the end of batch N from before it runs, and ``commits/N`` is there, under that name, as
soon as the batch is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from .errors import OptionError
from .offsets import Offsets, parsed


class _Files(Protocol):
    """The folder. Both raise ``OSError``."""

    def names(self, folder: str) -> Iterable[str]:
        """Of the files in it; none where it is not there."""

    def read(self, path: str) -> bytes: ...


class Checkpoint:
    """At ``location``, as Spark was given it: a path, or a URI that pyarrow has a way to. Raises ``OptionError``."""

    def __init__(self, location: str) -> None:
        self._location = location
        local = re.fullmatch("(?:file:(?://)?)?(/.*|[^:]*)", location)
        self._files: _Files = _Local(Path(local[1])) if local else _Store(location)

    def durable(self, query: str) -> Offsets | None:
        """The end of the newest durable batch of the query of that name; None if there is none. Raises ``OSError``."""
        newest = max((int(name) for name in self._files.names("commits") if name.isdecimal()), default=None)
        if newest is not None:
            text = self._files.read(f"offsets/{newest}").decode()
            for found in _objects(text):
                if found.get("query") == query and "topics" in found:
                    return parsed(found)
        return None

    def foreign(self) -> OptionError:
        """It is not where this query's batches are written down."""
        return OptionError(
            f"option 'checkpointLocation' is {self._location!r}, but this query's batches are not written down there:"
            " give the reader the text that the writer was given, with the scheme if it is no path of this machine's"
        )


class _Local:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, folder: str) -> Iterable[str]:
        try:
            return [path.name for path in (self._folder / folder).iterdir()]
        except FileNotFoundError:
            return ()

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()


class _Store:
    """What ``pyarrow.fs`` knows."""

    def __init__(self, location: str) -> None:
        import pyarrow as pa
        from pyarrow import fs

        self._fs = fs
        try:
            self._system, folder = fs.FileSystem.from_uri(re.sub("^s3[an]:", "s3:", location))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise OptionError(
                f"option 'checkpointLocation' is {location!r}, but there is no way to there by pyarrow ({error}):"
                " leave it out, and the group is done with a batch when Spark looks for the next one"
            ) from error
        self._folder = folder.rstrip("/")

    def names(self, folder: str) -> Iterable[str]:
        selector = self._fs.FileSelector(f"{self._folder}/{folder}", allow_not_found=True)
        return [info.base_name for info in self._system.get_file_info(selector)]

    def read(self, path: str) -> bytes:
        with self._system.open_input_stream(f"{self._folder}/{path}") as file:
            return bytes(file.read())


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects that stand in a line each, or as text within such a one: the layout is Spark's, and may change."""
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
