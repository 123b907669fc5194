"""The folder of an archive where only Hadoop has a way to: by Hadoop's ``FileSystem`` in the JVM of a Spark session.

Python on executors has no JVM to ask. So there Spark itself writes (see ``indirect``), and the driver does the rest
with what is here.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..errors import OptionError
from .files import HIDDEN, Found
from .places import PREFIX
from .walking import Walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN_WHEN_CLOSED = ("s3a", "gs")
"""Stores that show a file when it was written to its end, and have no renaming but by a copy."""

CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Asks S3A to let the store itself refuse a name that is taken (Hadoop 3.4.2 and newer; others do not know it)."""

_ERRORS: dict[str, tuple[type[OSError], int]] = {
    "FileNotFoundException": (FileNotFoundError, errno.ENOENT),
    "NoSuchFileException": (FileNotFoundError, errno.ENOENT),
    "FileAlreadyExistsException": (FileExistsError, errno.EEXIST),
    "ParentNotDirectoryException": (NotADirectoryError, errno.ENOTDIR),
    "AccessControlException": (PermissionError, errno.EACCES),
}


class HadoopFiles:
    """A folder as Hadoop's ``FileSystem`` has it, with the configuration of a session.

    No file is replaced by a name: HDFS and what is like it refuse that when a file is renamed, S3A and Google's store
    when one is created. Others look it up just before, as a local disk under ``viewfs`` does.
    """

    def __init__(self, uri: str, spark: SparkSession) -> None:
        """Raises ``OSError`` where Hadoop has no way to there."""
        self.uri = uri
        self._place = uri.removeprefix(PREFIX).rstrip("/")
        with _told(self._place):
            java: Any = spark._jvm
            self._java = java
            configuration = spark._jsparkSession.sessionState().newHadoopConf()
            self._walk: Walk | None = None
            self._path = java.org.apache.hadoop.fs.Path
            self._digests = java.org.apache.commons.codec.digest.DigestUtils
            self._system = self._full("").getFileSystem(configuration)
            self._system.exists(self._full(""))  # Asks, and so finds out whether there is anybody.

    def list(self, folder: str, *, deep: bool = False) -> list[Found]:
        found = self._below(folder) if deep else self._under(folder, deep)
        return sorted(found, key=lambda each: each.path)

    def look(self, folder: str) -> Iterator[tuple[str, bool]]:
        for path, each in self._there(folder):
            yield path, bool(each.isDirectory())

    def exists(self, path: str) -> bool:
        with _told(path):
            return bool(self._system.exists(self._full(path)))

    def read(self, path: str) -> bytes:
        with _told(path):
            stream = self._system.open(self._full(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def open(self, path: str) -> Any:
        with _told(path):
            size = int(self._system.getFileStatus(self._full(path)).getLen())
            return pa.PythonFile(_Reader(path, self._system.open(self._full(path)), size), "r")

    def digest(self, path: str) -> tuple[int, str]:
        with _told(path):
            stream = self._system.open(self._full(path))
            try:
                found = str(self._digests.sha256Hex(stream))
                return int(stream.getPos()), found
            finally:
                stream.close()

    def write(self, path: str, data: bytes) -> None:
        place = PurePosixPath(path)
        beside = str(place.parent / f"{HIDDEN}{place.name}.{uuid.uuid4().hex}")
        if self.exists(path):
            raise _there(path)
        if self._place.startswith(SHOWN_WHEN_CLOSED):
            with _told(path):
                builder = self._system.createFile(self._full(path)).overwrite(False).recursive()
                self._written(builder.opt(CONDITIONAL, "true").build(), data)
            return
        try:
            with _told(beside):
                self._written(self._system.create(self._full(beside), False), data)
            self.move(beside, path)
        finally:
            with suppress(OSError):
                self.delete(beside)

    @contextmanager
    def create(self, path: str) -> Iterator[Any]:
        with _told(path):
            stream = self._system.create(self._full(path), False)
        yield _Writer(path, stream)
        with _told(path):
            self._closed(stream)

    def move(self, path: str, goal: str) -> None:
        """Raises ``FileExistsError`` rather than replace a file."""
        if self.exists(goal):
            raise _there(goal)
        with _told(goal):
            self._system.mkdirs(self._full(goal).getParent())
            done = self._system.rename(self._full(path), self._full(goal))
        if not done:
            if self.exists(goal):
                raise _there(goal)
            raise OSError(errno.EIO, f"Hadoop did not rename {path}, and does not say why", goal)

    def delete(self, path: str) -> None:
        with _told(path):
            done = self._system.delete(self._full(path), False)
        if not done:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)

    def discard(self, folder: str) -> None:
        with _told(folder):
            self._system.delete(self._full(folder), True)

    def spark_path(self, path: str) -> str:
        return f"{self._place}/{path}"

    def _below(self, folder: str) -> Iterable[Found]:
        try:
            with _told(folder):
                self._walk = self._walk or Walk(self._java)
                there = self._walk.below(self._system, self._full(folder))
        except (OSError, TypeError):
            # No such folder, or a part of it went meanwhile, or Hadoop is an older one.
            return self._under(folder, deep=True)
        return [Found(str(PurePosixPath(folder) / path), size, modified) for path, size, modified in there]

    def _under(self, folder: str, deep: bool) -> Iterator[Found]:
        """Folder by folder, and file by file."""
        for path, each in self._there(folder):
            if not each.isDirectory():
                yield Found(path, int(each.getLen()), each.getModificationTime() / 1000)
            elif deep:
                yield from self._under(path, deep)

    def _there(self, folder: str) -> Iterator[tuple[str, Any]]:
        """What a folder holds, by path; nothing if there is no such folder."""
        try:
            with _told(folder):
                there = list(self._system.listStatus(self._full(folder)))
                for each in there:
                    if each.isFile() and each.getPath().equals(self._full(folder)):
                        raise NotADirectoryError(errno.ENOTDIR, "is a file, no folder", folder)
        except FileNotFoundError:
            return
        for each in there:
            yield str(PurePosixPath(folder) / str(each.getPath().getName())), each

    def _full(self, path: str) -> Any:
        return self._path(f"{self._place}/{path}")

    def _written(self, stream: Any, data: bytes) -> None:
        stream.write(data)
        self._closed(stream)

    def _closed(self, stream: Any) -> None:
        """Durably, where there is a difference: HDFS has a file in the memory of its machines when it is closed."""
        if stream.hasCapability("hsync"):
            stream.hsync()
        stream.close()


class _Reader:
    """A stream of Java's as a file of Python's."""

    def __init__(self, path: str, stream: Any, size: int) -> None:
        self._path, self._stream, self._size = path, stream, size
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        with _told(self._path):
            here = int(self._stream.getPos())
            return bytes(self._stream.readNBytes(self._size - here if count < 0 else count))

    def seek(self, place: int, whence: int = 0) -> int:
        with _told(self._path):
            start = (0, int(self._stream.getPos()), self._size)[whence]
            self._stream.seek(start + place)
            return start + place

    def tell(self) -> int:
        with _told(self._path):
            return int(self._stream.getPos())

    def close(self) -> None:
        self.closed = True
        with _told(self._path):
            self._stream.close()


class _Writer:
    def __init__(self, path: str, stream: Any) -> None:
        self._path, self._stream = path, stream

    def write(self, data: Any) -> int:
        with _told(self._path):
            self._stream.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """When it is closed."""


def hadoop_at(place: str, spark: SparkSession | None, otherwise: str) -> HadoopFiles:
    """The folder of that URI. ``otherwise``: why there is no other way.

    Raises ``OptionError`` where Hadoop has none, or cannot be asked.
    """
    if spark is None:
        raise OptionError(
            f"{place}: no way to there {otherwise}; only a Spark session can ask Hadoop for one: give it, as in"
            " Archive.open(to, spark)"
        )
    if getattr(spark, "_jvm", None) is None:
        raise OptionError(
            f"{place}: no way to there {otherwise}; Hadoop, which may have one, cannot be asked through Spark Connect:"
            " take a Spark session of this process (--master, spark-submit), or a place that Arrow knows"
        )
    try:
        return HadoopFiles(place, spark)
    except OSError as error:
        raise OptionError(f"{place}: no way to there {otherwise}; nor by Hadoop: {error.strerror}") from error


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What Java raises, as an ``OSError``."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        java = error.java_exception
        kind, number = _ERRORS.get(str(java.getClass().getSimpleName()), (OSError, errno.EIO))
        raise kind(number, str(java.toString()), path) from error
    except (Py4JError, PySparkException) as error:
        raise OSError(errno.EIO, str(error), path) from error


def _there(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, "there is such a file already", path)
