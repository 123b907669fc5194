"""The folder of an archive or of an export: on a local disk, or in an object store.

Written files survive a power failure: local files and their folders are synced, and an object store guarantees it when
a file is closed. The package ``obstore`` connects to object stores. It uses the library
``object_store``, as ``deltalake`` does for the log of a Delta table.
"""

from __future__ import annotations

import io
import os
import shutil
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from .. import private
from .locations import check_location

HIDDEN = "."
"""The prefix of files and folders that readers ignore."""


class Output(io.RawIOBase):
    """A stream for writing that computes the size and the CRC-32. ``close`` does not close the given stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.bytes: int = 0
        self.crc: int = 0

    def write(self, data: Any) -> int:
        self._stream.write(data)
        size = memoryview(data).nbytes
        self.bytes += size
        self.crc = zlib.crc32(data, self.crc)
        return size

    def tell(self) -> int:
        return self.bytes

    def writable(self) -> bool:
        return True


class LocalStorage:
    """A folder of a local disk. Paths are relative to it. Methods raise ``OSError``, such as ``FileNotFoundError``.

    ``uri``: the location, for error messages, for ``storage_at`` in another process, and for the Delta tables.
    """

    def __init__(self, folder: str) -> None:
        self.uri = folder
        self._folder = Path(folder)

    def list(self, folder: str = "") -> dict[str, int]:
        """Return the size in bytes of each file below a folder, by path; empty if there is no folder."""
        found = {}
        for parent, _, names in os.walk(self._folder / folder, onerror=_unless_missing):
            for name in names:
                path = Path(parent) / name
                with suppress(FileNotFoundError):
                    found[path.relative_to(self._folder).as_posix()] = path.lstat().st_size
        return dict(sorted(found.items()))

    def open(self, path: str) -> Any:
        """Return a file for random access by pyarrow."""
        return pa.OSFile(str(self._folder / path), "rb")

    def read(self, path: str) -> bytes:
        return (self._folder / path).read_bytes()

    def exists(self, path: str) -> bool:
        return (self._folder / path).exists()

    def write(self, path: str, data: bytes) -> None:
        """Write a new file with this content. Raises ``FileExistsError``: it never replaces a file."""
        private.refuse_links(self._folder, path)
        _create_folder((self._folder / path).parent)
        temporary = f"{HIDDEN}{uuid.uuid4().hex}"
        try:
            with self.create(temporary) as stream:
                stream.write(data)
            os.link(self._folder / temporary, self._folder / path)
        finally:
            (self._folder / temporary).unlink(missing_ok=True)
        _sync((self._folder / path).parent)

    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        """Yield the stream of a new file. The file is durable if no error is raised."""
        private.refuse_links(self._folder, path)
        target = self._folder / path
        _create_folder(target.parent)
        with open(target, "xb", opener=private.opener) as file:
            yield Output(file)
            file.flush()
            os.fsync(file.fileno())
        _sync(target.parent)

    def move(self, path: str, target: str) -> None:
        """Rename a file. The new name must be unused. Object stores copy the file."""
        private.refuse_links(self._folder, target)
        os.rename(self._folder / path, self._folder / target)
        _sync((self._folder / target).parent)

    def delete(self, path: str) -> None:
        (self._folder / path).unlink()

    def discard(self, folder: str) -> None:
        """Delete a folder with all its files and subfolders, if it exists."""
        shutil.rmtree(self._folder / folder, ignore_errors=True)

    def sync(self, path: str) -> None:
        """Make a file durable that other code has written."""
        _sync(self._folder / path)
        _sync((self._folder / path).parent)


@contextmanager
def _os_errors() -> Iterator[None]:
    """Convert the errors of an object store to the ``OSError`` with the same meaning."""
    from obstore import exceptions

    try:
        yield
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(str(error)) from error
    except exceptions.NotFoundError as error:
        raise FileNotFoundError(str(error)) from error
    except exceptions.BaseError as error:
        raise OSError(str(error)) from error


class ObjectStorage:
    """A folder of an object store, with the methods of ``LocalStorage``. Its files appear when they are complete.

    It connects at the first call, so that a fork before that is safe: ``object_store`` works only in the process that
    first used it.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @cached_property
    def _store(self) -> Any:
        from obstore.store import from_url

        return from_url(self.uri)

    @_os_errors()
    def list(self, folder: str = "") -> dict[str, int]:
        found = self._store.list(f"{folder}/" if folder else None).collect()
        return dict(sorted((each["path"], each["size"]) for each in found))

    @_os_errors()
    def open(self, path: str) -> Any:
        import obstore

        return pa.PythonFile(_Input(obstore.open_reader(self._store, path)), "r")

    @_os_errors()
    def read(self, path: str) -> bytes:
        return bytes(self._store.get(path).bytes())

    def exists(self, path: str) -> bool:
        try:
            with _os_errors():
                self._store.head(path)
        except FileNotFoundError:
            return False
        return True

    @_os_errors()
    def write(self, path: str, data: bytes) -> None:
        self._store.put(path, data, mode="create")

    @contextmanager
    def create(self, path: str) -> Iterator[Output]:
        import obstore

        with _os_errors(), obstore.open_writer(self._store, path) as stream:
            yield Output(stream)

    @_os_errors()
    def move(self, path: str, target: str) -> None:
        self._store.rename(path, target)

    @_os_errors()
    def delete(self, path: str) -> None:
        self._store.delete(path)

    def discard(self, folder: str) -> None:
        for path in self.list(folder):
            self.delete(path)

    def sync(self, path: str) -> None:
        """Do nothing: the files of an object store are durable."""


class _Input(io.RawIOBase):
    """A file of an object store, with the methods that pyarrow calls."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    @_os_errors()
    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.readall() if size < 0 else self._reader.read(size))

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())

    def readable(self) -> bool:
        return True


Storage = LocalStorage | ObjectStorage


def storage_at(to: str | os.PathLike[str]) -> Storage:
    """Return the folder at a path of this machine, or at a URI of an object store. Raises ``OptionError``."""
    location = check_location(to)
    return ObjectStorage(location) if "://" in location else LocalStorage(location)


def visible_files(storage: Storage) -> list[str]:
    """Return the files that make the folder unusable for a new archive or export.

    Ignore hidden files and folders at its top, and the folder ``lost+found`` of a file system.
    """
    return [path for path in storage.list() if not path.startswith((HIDDEN, "lost+found/"))]


def _create_folder(folder: Path) -> None:
    """Create the folder and its parents, durably."""
    if folder.is_dir():
        return
    _create_folder(folder.parent)
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
