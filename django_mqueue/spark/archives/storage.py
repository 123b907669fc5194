"""The folder of an archive or of an export: on a local disk, or in an object store.

What was written is there after a power failure: local files and their folders are synced, and an object store promises
it when a file is closed. Object stores are reached through ``object_store``, as the Delta table's log is.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from .. import private
from .places import check_place

HIDDEN = "."
"""How the names of files and folders begin that readers pass over."""


@dataclass(frozen=True)
class Found:
    """A file: ``path`` relative to the folder."""

    path: str
    bytes: int


class Storage(Protocol):
    """Paths are relative to the folder, with slashes. All raise ``OSError``, and ``FileNotFoundError`` for no file."""

    uri: str
    """For messages, for ``storage_at`` in another process, and for the Delta tables."""

    def list(self, folder: str = "") -> list[Found]:
        """The files of a folder and of all below it, by path; none if there is no such folder."""

    def open(self, path: str) -> Any:
        """A file for reading at random, by pyarrow."""

    def read(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def write(self, path: str, data: bytes) -> None:
        """Write a whole file into a folder that is there. Raises ``FileExistsError`` rather than replace one."""

    def create(self, path: str) -> Any:
        """A context with an ``Output`` for a new file, which is durable when it ends without an error."""

    def move(self, path: str, goal: str) -> None:
        """Give a file another name, which no file has. Object stores copy it."""

    def delete(self, path: str) -> None: ...

    def discard(self, folder: str) -> None:
        """Delete a folder with all that is below, if it is there."""

    def make(self, folder: str) -> None:
        """Make a folder for others to write in, if it is not there, for this account alone."""

    def sync(self, path: str) -> None:
        """Make a file durable that was written by others."""


class Output:
    """A stream for writing that knows how many bytes were written. Closing it closes nothing below."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._stream.write(data)
        size = memoryview(data).nbytes
        self.bytes += size
        return size

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self.closed = True


class LocalStorage:
    """A folder of a local disk."""

    def __init__(self, folder: str) -> None:
        self.uri = folder
        self._folder = Path(folder)

    def list(self, folder: str = "") -> list[Found]:
        found = []
        for parent, _, names in os.walk(self._folder / folder, onerror=_unless_missing):
            for name in names:
                path = Path(parent) / name
                with suppress(FileNotFoundError):
                    found.append(Found(path.relative_to(self._folder).as_posix(), path.lstat().st_size))
        return sorted(found, key=lambda each: each.path)

    def open(self, path: str) -> Any:
        return pa.OSFile(str(self._folder / path), "rb")

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def exists(self, path: str) -> bool:
        return (self._folder / path).exists()

    def write(self, path: str, data: bytes) -> None:
        beside = f"{HIDDEN}{uuid.uuid4().hex}"
        try:
            with self.create(beside) as stream:
                stream.write(data)
            os.link(self._folder / beside, self._folder / path)
        finally:
            (self._folder / beside).unlink(missing_ok=True)
        _sync((self._folder / path).parent)

    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        private.refuse_links(self._folder, path)
        goal = self._folder / path
        _make(goal.parent)
        with os.fdopen(private.create(goal), "wb") as file:
            yield Output(file)
            file.flush()
            os.fsync(file.fileno())
        _sync(goal.parent)

    def move(self, path: str, goal: str) -> None:
        private.refuse_links(self._folder, goal)
        os.rename(self._folder / path, self._folder / goal)
        _sync((self._folder / goal).parent)

    def delete(self, path: str) -> None:
        (self._folder / path).unlink()

    def discard(self, folder: str) -> None:
        shutil.rmtree(self._folder / folder, ignore_errors=True)

    def make(self, folder: str) -> None:
        private.refuse_links(self._folder, folder)
        _make(self._folder / folder)

    def sync(self, path: str) -> None:
        _sync(self._folder / path)
        _sync((self._folder / path).parent)


class ObjectStorage:
    """A folder of an object store. Its files appear when they are whole.

    Nothing is connected before the first call, and never before a process forks: ``object_store`` works only in the
    process that has begun to use it.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @cached_property
    def _store(self) -> Any:
        from obstore.store import from_url

        return from_url(self.uri)

    def list(self, folder: str = "") -> list[Found]:
        import obstore

        with _errors_of_system():
            found = obstore.list(self._store, f"{folder}/" if folder else None).collect()
        return sorted((Found(each["path"], each["size"]) for each in found), key=lambda each: each.path)

    def open(self, path: str) -> Any:
        import obstore

        with _errors_of_system():
            return pa.PythonFile(_Input(obstore.open_reader(self._store, path)), "r")

    def read(self, path: str) -> bytes:
        import obstore

        with _errors_of_system():
            return bytes(obstore.get(self._store, path).bytes())

    def exists(self, path: str) -> bool:
        import obstore

        try:
            with _errors_of_system():
                obstore.head(self._store, path)
        except FileNotFoundError:
            return False
        return True

    def write(self, path: str, data: bytes) -> None:
        import obstore

        with _errors_of_system():
            obstore.put(self._store, path, data, mode="create")

    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        import obstore

        with _errors_of_system(), obstore.open_writer(self._store, path) as stream:
            yield Output(stream)

    def move(self, path: str, goal: str) -> None:
        import obstore

        with _errors_of_system():
            obstore.rename(self._store, path, goal)

    def delete(self, path: str) -> None:
        import obstore

        with _errors_of_system():
            obstore.delete(self._store, path)

    def discard(self, folder: str) -> None:
        for each in self.list(folder):
            self.delete(each.path)

    def make(self, folder: str) -> None:
        """Nothing: stores have no folders."""

    def sync(self, path: str) -> None:
        """Nothing: the store has done it."""


@contextmanager
def _errors_of_system() -> Iterator[None]:
    """Errors of a store as the errors of a disk that mean the same."""
    from obstore import exceptions

    try:
        yield
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(str(error)) from error
    except exceptions.NotFoundError as error:
        raise FileNotFoundError(str(error)) from error
    except exceptions.BaseError as error:
        raise OSError(str(error)) from error


class _Input:
    """What pyarrow asks of a file."""

    closed = False

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def read(self, size: int = -1) -> bytes:
        with _errors_of_system():
            return bytes(self._reader.readall() if size < 0 else self._reader.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def storage_at(to: str | os.PathLike[str]) -> Storage:
    """The folder of that name: a path of this machine, or a URI of an object store. Raises ``OptionError``."""
    place = check_place(to)
    return ObjectStorage(place) if "://" in place else LocalStorage(place)


def held(storage: Storage) -> list[str]:
    """Files that the folder holds, if it is not free for a new archive or export. Hidden ones do not count."""
    paths = (each.path for each in storage.list())
    return [path for path in paths if not path.startswith((HIDDEN, "lost+found/"))]


def _make(folder: Path) -> None:
    """Create the folder, and those above it, durably."""
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


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
