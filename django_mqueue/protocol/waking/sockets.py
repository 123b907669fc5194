"""Wake processes on this host, by datagrams to Unix sockets in a directory that only their user can enter.

Each waiting process binds a socket. While it sleeps, the file's name also shows its topics. A publisher renames
the file back before it sends the datagram, so only the first publisher sends one. The content is never used.

The name of a file is SLOT.TOKEN while its process is awake, and SLOT.TOKEN.MASK while it sleeps. The slot is that of
``store.connection.wakeups``, or -1. The mask has a bit for each name that the process waits for.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any
from zlib import crc32

from django.db import connections

BITS = 64
NO_SLOT = -1
REQUESTS = "requests"
"""The purpose of the requesters' directory. That of the workers has none."""
IS_POSSIBLE = hasattr(socket, "AF_UNIX") and hasattr(os, "geteuid")


class SleepSocket:
    """The socket of one waiting process, or of one waiting request. Raises ``OSError`` if it cannot be created.

    ``place``: the directory's name, from ``place_of``. ``names``: the topics, or the request, that it waits for.
    """

    def __init__(self, place: str, names: Iterable[str], slot: int = NO_SLOT) -> None:
        self._directory = _opened(place)
        mask = 0
        for name in names:
            mask |= bit_of(name)
        self._awake = f"{self._directory}/{slot}.{secrets.token_hex(4)}"
        self._asleep = f"{self._awake}.{mask:x}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self._awake)

    def sleep(self) -> None:
        """Ask for a wake-up. After this call, check once more for what you wait for: it may have come before."""
        with suppress(OSError):
            os.rename(self._awake, self._asleep)

    @property
    def is_there(self) -> bool:
        """Return whether the file still exists: a clean-up of temporary files may have deleted it."""
        return os.path.exists(self._asleep) or os.path.exists(self._awake)

    def wait(self, seconds: float | None) -> bool:
        """Wait for a wake-up. Return False if there is none within ``seconds``."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1)
        except TimeoutError:
            return False
        return True

    def __del__(self) -> None:
        with suppress(AttributeError):  # It was never opened.
            self.close()

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # A thread in ``wait`` returns.
        self.socket.close()
        # In this order, because a publisher may rename it meanwhile.
        for path in (self._asleep, self._awake):
            with suppress(OSError):
                os.unlink(path)


def wake(place: str, bit: int) -> None:
    """Wake the sleeping processes of a place that wait for a name with this bit. Never waits, and never fails."""
    directory = _path(place)
    if directory is None:
        return
    try:
        sleeping = _sleeping(directory)
    except OSError:
        return  # No process of this host waits, or ever did.
    for asleep, awake, mask in sleeping:
        if mask & bit:
            _send(asleep, awake)


Sleeping = list[tuple[str, str, int]]
"""For each sleeping process: the paths of its file while it sleeps and while it is awake, and its mask."""

_listings: dict[str, tuple[int, Sleeping]] = {}
SAME_TIME_NS = 50_000_000
"""Two changes of a directory within this time may have the same timestamp."""


def _sleeping(directory: str) -> Sleeping:
    """Return the sleeping processes. Do not list a directory again that has not changed: publishers call this."""
    now, changed = time.time_ns(), os.stat(directory).st_mtime_ns
    known = _listings.get(directory)
    if known is not None and known[0] == changed:
        return known[1]
    found = []
    for file in os.listdir(directory):
        owner, _, mask = file.rpartition(".")
        with suppress(ValueError):
            if "." in owner:
                found.append((f"{directory}/{file}", f"{directory}/{owner}", int(mask, 16)))
    if now - changed > SAME_TIME_NS:
        _listings[directory] = changed, found
    return found


def _send(asleep: str, awake: str) -> None:
    with suppress(OSError):
        os.rename(asleep, awake)  # Another publisher was faster if this fails.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(b"", awake)
            except ConnectionRefusedError:
                os.unlink(awake)  # Its process died.


def bit_of(name: str) -> int:
    """Return one of 64 bits for a name. Two names may share a bit: a false wake-up costs one poll."""
    return 1 << (crc32(name.encode()) % BITS)


def place_of(using: str, what: str = "") -> str:
    """Return the name of the directory for a database: a hash of its settings. ``what``: a separate purpose."""
    return place_by(connections[using].settings_dict, what)


def place_by(settings: Mapping[str, Any], what: str = "") -> str:
    options = settings["OPTIONS"]
    return _place(
        settings["HOST"], settings["PORT"], settings["NAME"],
        options.get("unix_socket"), options.get("read_default_file"), what,
    )  # fmt: skip


@lru_cache
def _place(*parts: object) -> str:
    return sha256("\0".join(map(str, parts)).encode()).hexdigest()[:8]


_paths: dict[tuple[int, str], str] = {}
"""The path of each place that was checked, by user and place. A temporary directory is sticky, so no other user can
replace the parent directory later."""


def _path(place: str) -> str | None:
    """Return the path of a place; None without Unix sockets or a parent directory that only this user can enter."""
    if not IS_POSSIBLE:
        return None
    key = os.geteuid(), place
    if key not in _paths:
        try:
            root = _root()
            found = os.lstat(root)
        except OSError:
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None
        _paths[key] = f"{root}/{place}"
    return _paths[key]


def _root() -> str:
    return os.path.join(tempfile.gettempdir(), f"mqueue-{os.geteuid()}")


def _opened(place: str) -> str:
    """Create the directory of a place if it is missing, and return its path."""
    if not IS_POSSIBLE:
        raise OSError("this platform has no Unix sockets")
    root = _root()
    with suppress(FileExistsError):
        os.mkdir(root, 0o700)
    path = _path(place)
    if path is None:
        raise PermissionError(f"{root} must be a directory of this user that no other user can enter")
    os.makedirs(path, 0o700, exist_ok=True)
    return path


def slots(place: str) -> set[int]:
    """Return the slots of the processes of a place. Remove the files of processes that died."""
    directory, found = _path(place), set[int]()
    for file in os.listdir(directory) if directory and os.path.isdir(directory) else ():
        with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(f"{directory}/{file}")
                found.add(int(file.partition(".")[0]))
            except ConnectionRefusedError:
                os.unlink(f"{directory}/{file}")
    return found - {NO_SLOT}
