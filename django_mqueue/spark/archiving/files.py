"""The folder of an archive: on a local disk, in a store that ``pyarrow.fs`` knows, or where only Hadoop has a way to.

What was written is there after a power failure: on local disks files and the folders they are in are synced; the
others promise it when a file is closed. A file that stands under its name is whole where it matters (manifests), and
never replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import textwrap
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyarrow import fs

from .. import private
from ..errors import OptionError
from .places import PREFIX, check_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HIDDEN = "."
"""How the names of files begin that are being written."""

_CHECKSUM = re.compile(r"\..*\.crc")
"""What Hadoop writes beside each file of a local disk."""
_CHUNK = 8 * 1_048_576
_REASON = 160


@dataclass(frozen=True)
class Found:
    """A file: ``path`` relative to the archive; ``modified`` in seconds since 1970, 0 where it is not known."""

    path: str
    bytes: int
    modified: float


class Files(Protocol):
    """Paths are relative to the folder. All raise ``OSError``; ``FileNotFoundError`` where there is no such file."""

    uri: str
    """For messages, and for ``files_at`` in another process."""

    def list(self, folder: str, *, deep: bool = False) -> list[Found]:
        """The files of a folder (``deep``: and of all below it), by path; none if there is no such folder."""

    def look(self, folder: str) -> Iterator[tuple[str, bool]]:
        """What a folder holds, by path, and whether that is a folder itself; nothing if there is no such folder."""

    def exists(self, path: str) -> bool: ...

    def read(self, path: str) -> bytes: ...

    def open(self, path: str) -> Any:
        """For reading at random, by pyarrow."""

    def digest(self, path: str) -> tuple[int, str]:
        """How many bytes the file has, and their SHA-256: read as a whole."""

    def write(self, path: str, data: bytes) -> None:
        """Durably and as a whole. Raises ``FileExistsError`` rather than replace a file."""

    def create(self, path: str) -> Any:
        """A context with a stream for writing a new file; durable when it ends without an error."""

    def move(self, path: str, goal: str) -> None:
        """Give a file another name, of which there is none. Where stores have no renaming, by a copy."""

    def delete(self, path: str) -> None: ...

    def discard(self, folder: str) -> None:
        """Delete it with all that is below, if it is there."""

    def spark_path(self, path: str) -> str:
        """What Spark calls the file."""


class LocalFiles:
    """A folder of a disk."""

    def __init__(self, folder: str) -> None:
        self.uri = folder
        self._folder = Path(folder)

    def list(self, folder: str, *, deep: bool = False) -> list[Found]:
        top = self._folder / folder
        found = []
        for parent, folders, names in os.walk(top, onerror=_unless_missing):
            for name in names:
                if _CHECKSUM.fullmatch(name):
                    continue
                path = Path(parent) / name
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue
                found.append(Found(path.relative_to(self._folder).as_posix(), stat.st_size, stat.st_mtime))
            if not deep:
                folders.clear()
        return sorted(found, key=lambda each: each.path)

    def look(self, folder: str) -> Iterator[tuple[str, bool]]:
        with suppress(FileNotFoundError), os.scandir(self._folder / folder) as entries:
            for entry in entries:
                yield str(PurePosixPath(folder) / entry.name), entry.is_dir(follow_symlinks=False)

    def exists(self, path: str) -> bool:
        return (self._folder / path).exists()

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def open(self, path: str) -> Any:
        return pa.OSFile(str(self._folder / path), "rb")

    def digest(self, path: str) -> tuple[int, str]:
        return _digest(self.open(path))

    def write(self, path: str, data: bytes) -> None:
        private.refuse_links(self._folder, path)
        goal = self._folder / path
        _make(goal.parent)
        beside = goal.parent / f"{HIDDEN}{goal.name}.{uuid.uuid4().hex}"
        try:
            with os.fdopen(private.create(beside), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _name(beside, goal)
        finally:
            beside.unlink(missing_ok=True)
        _sync(goal.parent)

    @contextmanager
    def create(self, path: str) -> Iterator[Any]:
        private.refuse_links(self._folder, path)
        goal = self._folder / path
        _make(goal.parent)
        os.close(private.create(goal))
        with pa.OSFile(str(goal), "wb") as stream:
            yield stream
        _sync(goal)
        _sync(goal.parent)

    def move(self, path: str, goal: str) -> None:
        private.refuse_links(self._folder, goal)
        os.rename(self._folder / path, self._folder / goal)
        _sync((self._folder / goal).parent)

    def delete(self, path: str) -> None:
        file = self._folder / path
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def discard(self, folder: str) -> None:
        shutil.rmtree(self._folder / folder, ignore_errors=True)

    def spark_path(self, path: str) -> str:
        return f"file://{self._folder / path}"


class StoreFiles:
    """A folder of whatever ``pyarrow.fs`` knows besides. ``base`` is the folder as that file system has it.

    Object stores show an object when it was written to its end. They cannot refuse to replace one: that there is none
    is looked up before, and whoever writes a name must be the only one.
    """

    def __init__(self, uri: str, system: fs.FileSystem, base: str) -> None:
        self.uri = uri
        self._system, self._base = system, base.rstrip("/")
        self._has_folders = system.type_name not in ("s3", "gcs")

    def list(self, folder: str, *, deep: bool = False) -> list[Found]:
        selector = fs.FileSelector(self._full(folder), recursive=deep, allow_not_found=True)
        return sorted(
            (
                Found(self._path(info), info.size or 0, info.mtime.timestamp() if info.mtime else 0.0)
                for info in self._system.get_file_info(selector)
                if info.type == fs.FileType.File
            ),
            key=lambda each: each.path,
        )

    def look(self, folder: str) -> Iterator[tuple[str, bool]]:
        if self._system.type_name == "gcs":
            yield from self._first_level(folder)
            return
        selector = fs.FileSelector(self._full(folder), allow_not_found=True)
        for info in self._system.get_file_info(selector):
            yield self._path(info), info.type == fs.FileType.Directory

    def _first_level(self, folder: str) -> Iterator[tuple[str, bool]]:
        """By all that is below: of a folder alone Arrow lists there no folders but those that an object stands for
        (``GetFileInfo`` in its gcsfs.cc)."""
        before, seen = f"{folder}/" if folder else "", set[str]()
        for each in self.list(folder, deep=True):
            name, slash, _ = each.path.removeprefix(before).partition("/")
            if name not in seen:
                seen.add(name)
                yield before + name, bool(slash)

    def exists(self, path: str) -> bool:
        return bool(self._system.get_file_info(self._full(path)).type == fs.FileType.File)

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            return bytes(file.read())

    def open(self, path: str) -> Any:
        return self._system.open_input_file(self._full(path))

    def digest(self, path: str) -> tuple[int, str]:
        return _digest(self.open(path))

    def write(self, path: str, data: bytes) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "there is such a file already", self._full(path))
        if not self._has_folders:
            with self.create(path) as stream:
                stream.write(data)
            return
        place = PurePosixPath(path)
        beside = str(place.parent / f"{HIDDEN}{place.name}.{uuid.uuid4().hex}")
        try:
            with self.create(beside) as stream:
                stream.write(data)
            self._system.move(self._full(beside), self._full(path))
        except BaseException as error:
            with suppress(OSError, pa.ArrowException):
                self.delete(beside)
            if not isinstance(error, NotImplementedError):
                raise
            raise OSError(
                errno.ENOTSUP,
                "pyarrow cannot rename a file there, as with accounts of Azure's without hierarchical namespace; let"
                f" Hadoop do it, by {PREFIX}{self.uri}",
            ) from error

    @contextmanager
    def create(self, path: str) -> Iterator[Any]:
        if self._has_folders:
            self._system.create_dir(self._full(path).rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(self._full(path)) as stream:
            yield stream

    def move(self, path: str, goal: str) -> None:
        self._system.move(self._full(path), self._full(goal))

    def delete(self, path: str) -> None:
        self._system.delete_file(self._full(path))

    def discard(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_dir(self._full(folder))

    def spark_path(self, path: str) -> str:
        scheme, _, rest = self.uri.partition("://")
        scheme = {"s3": "s3a", "gcs": "gs"}.get(scheme, scheme)
        return f"{scheme}://{rest.partition('?')[0].rstrip('/')}/{path}"

    def _path(self, info: fs.FileInfo) -> str:
        return str(info.path).removeprefix(f"{self._base}/")

    def _full(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base


def files_at(to: str | os.PathLike[str], spark: SparkSession | None = None) -> Files:
    """The folder of that name: a path of this machine's, or a URI (``s3://``, ``gs://``, ``abfs://``, ``hdfs://``).

    Where pyarrow has no way to, ``spark`` asks Hadoop; and only Hadoop where ``hadoop+`` stands before the URI. Raises
    ``OptionError`` where neither has one.
    """
    from .hadoop import hadoop_at

    place = check_place(to)
    if re.match("file:/(?!/)", place):  # As Hadoop writes it.
        place = place.removeprefix("file:")
    scheme, separator, _ = place.partition("://")
    if not separator:
        return LocalFiles(os.path.abspath(place))
    if scheme.startswith(PREFIX):
        return hadoop_at(place, spark, f"but by Hadoop, as {PREFIX} says")
    known = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}.get(scheme, scheme)
    try:
        system, base = fs.FileSystem.from_uri(known + place[len(scheme) :])
    except (pa.ArrowException, OSError, ValueError) as error:
        if known in ("s3", "gs"):  # Something is wrong with the URI.
            raise OptionError(f"{place}: no way to there by pyarrow: {error}") from error
        # Where Arrow looks for Hadoop itself it names every place it has looked at: the way out comes after that.
        return hadoop_at(
            place, spark, f"by pyarrow: {textwrap.shorten(str(error), _REASON, placeholder=' …')}"
        )
    return LocalFiles(base) if isinstance(system, fs.LocalFileSystem) else StoreFiles(place, system, base)


def _digest(stream: Any) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _make(folder: Path) -> None:
    """The folder, and those above it, durably."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(private.FOLDER, exist_ok=True)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _name(beside: Path, goal: Path) -> None:
    try:
        os.link(beside, goal)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        if goal.exists():  # A disk without hard links: as with object stores.
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(goal)) from None
        os.rename(beside, goal)


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
