"""Open an archive to add to it, or create it. Check first that the run may write there."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import ArchiveError, NoArchive
from ..sql.installation import Installation
from .catalog import FORMAT, FORMAT_PROPERTY, GROUP, ID, INSTALLATION, KEPT, SERVER, Archive
from .jobs import spread
from .requests import TABLES
from .storage import HIDDEN, Storage, storage_at, visible_files
from .tables import create_table, open_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_to_write(storage: Storage, database: Installation, group: str, *, moved: bool) -> Archive | None:
    """Return the archive; None if there is none yet. Raises ``ArchiveError`` if this run must not write there."""
    uri = storage.uri
    try:
        archive = Archive.open(uri)
    except NoArchive:
        _check_empty(storage)
        return None
    if archive.properties.get(INSTALLATION) != database.id:
        raise ArchiveError(f"the archive {uri} belongs to another database: use one folder for each database")
    server = archive.properties.get(SERVER)
    if server != database.server and not moved:
        raise ArchiveError(
            f"the archive {uri} belongs to the database on server {server}, but this database is a copy of it on"
            f" server {database.server}. If the copy replaces the original, run once with moved=True (--moved)."
            " Otherwise use a new folder and a new group"
        )
    if archive.group != group:
        raise ArchiveError(
            f"the archive {uri} is written by group {archive.group!r}, not {group!r}: use that group, or another"
            " folder"
        )
    return archive


def _check_empty(storage: Storage) -> None:
    """Raise ``ArchiveError`` unless the folder is empty, except for files of a run killed at its start."""
    begun = tuple(f"{table}/_delta_log/" for table in TABLES)
    try:
        others = [path for path in visible_files(storage) if not path.startswith(begun)]
    except OSError as error:
        raise ArchiveError(f"{storage.uri} cannot be written: {error}") from error
    if others:
        raise ArchiveError(
            f"{storage.uri} is not an archive and is not empty (it holds {', '.join(others[:3])}): give an empty"
            " folder, or a new one"
        )


def check_writable(spark: SparkSession, storage: Storage, *, is_new: bool) -> None:
    """Raise ``ArchiveError`` unless the driver can use the storage, and in a new folder also an executor."""
    name, uri = f"{HIDDEN}probe-{uuid.uuid4().hex}", storage.uri

    def write(name: str) -> list[str]:
        storage_at(uri).write(name, b"")
        return [name]

    try:
        if is_new:
            spread(spark, write, [name], str)
        else:
            write(name)
        storage.read(name)
        # If the storage replaced files, two runs could commit at once, and both would report success.
        with suppress(FileExistsError):
            write(name)
            raise ArchiveError("it overwrote an existing file: the storage has no conditional writes")
        storage.delete(name)
    except FileNotFoundError:
        raise ArchiveError(
            f"{uri}: the driver does not see files that an executor writes there: give a location that all"
            " machines share"
        ) from None
    except (ArchiveError, OSError) as error:
        with suppress(OSError):
            storage.delete(name)
        raise ArchiveError(f"{uri} cannot be written: {error}") from error


def create_archive(storage: Storage, database: Installation, group: str) -> Archive:
    """Create the tables, the messages last: the archive exists when the table of messages exists."""
    properties = {
        FORMAT_PROPERTY: FORMAT, ID: uuid.uuid4().hex, GROUP: group,
        INSTALLATION: database.id, SERVER: database.server, **KEPT,
    }  # fmt: skip
    for table in TABLES:
        if table == "messages" or open_table(storage, table) is None:
            create_table(storage, table, properties)
    return Archive.open(storage.uri)
