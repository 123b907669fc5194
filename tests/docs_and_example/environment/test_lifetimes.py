"""A server ends with the process that started it, and the remains of a killed run do not disturb the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from example_project.environment import database as environment_database
from example_project.environment.database import database
from example_project.environment.layout import ROOT
from example_project.environment.scratch import SOCKET_PATH_MAX, scratch

HOLDER = """
import signal, sys
from pathlib import Path
from example_project.environment.database import FLAVOURS
from example_project.environment.processes import exit_on_signals
from example_project.environment.server import private_server

exit_on_signals()
with private_server(FLAVOURS["mariadb"](), Path(sys.argv[1])) as server:
    print(server.pid, server._watchdog.pid, server.place.directory, flush=True)
    signal.pause()
"""


class Holder:
    """A separate process with a server."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(home)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        server, watchdog, directory = self.process.stdout.readline().split()
        self.server, self.watchdog, self.directory = int(server), int(watchdog), Path(directory)

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    holder = Holder(tmp_path)
    yield holder
    holder.process.kill()
    holder.process.communicate()
    _wait_for_end_of(holder.server)


def _runs(pid: int) -> bool:
    """Return True if any thread of the process runs.

    The first thread of a killed process may end while other threads still hold its files.
    """
    return any(_state(stat) != "Z" for stat in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(stat: Path) -> str:
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def _wait_for_end_of(pid: int) -> None:
    deadline = monotonic() + 60
    while _runs(pid):
        assert monotonic() < deadline, f"process {pid} still runs"
        Event().wait(0.02)


def test_a_server_ends_when_its_launcher_is_killed(holder: Holder) -> None:
    assert _runs(holder.server)
    holder.end(signal.SIGKILL)
    _wait_for_end_of(holder.server)
    _wait_for_end_of(holder.watchdog)


def test_what_a_killed_launcher_left_is_removed_by_the_next(holder: Holder) -> None:
    holder.end(signal.SIGKILL)
    _wait_for_end_of(holder.server)
    _wait_for_end_of(holder.watchdog)
    assert holder.directory.is_dir()
    with scratch("test", holder.directory.parent):
        assert not holder.directory.exists()


def test_a_server_ends_when_its_watchdog_is_killed(holder: Holder) -> None:
    os.kill(holder.watchdog, signal.SIGKILL)
    _wait_for_end_of(holder.server)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_launcher_that_is_told_to_end_stops_its_server_first(
    holder: Holder, number: signal.Signals
) -> None:
    holder.end(number)
    assert not _runs(holder.server)
    assert not holder.directory.exists()


def test_directories_in_use_are_left_alone(tmp_path: Path) -> None:
    with scratch("one", tmp_path) as one, scratch("two", tmp_path) as two:
        assert one.directory.is_dir()
        assert one.directory != two.directory
    assert not one.directory.exists()


def test_a_socket_s_path_stays_short(tmp_path: Path) -> None:
    with scratch("long", tmp_path / ("x" * SOCKET_PATH_MAX)) as place:
        assert len(str(place.socket)) <= SOCKET_PATH_MAX
        assert place.sockets.is_dir()
    assert not place.sockets.exists()


def test_a_given_database_url_is_used_and_no_server_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://somebody@elsewhere/queue")
    monkeypatch.setattr(environment_database, "FLAVOURS", {})
    with database() as url:
        assert url == "mysql://somebody@elsewhere/queue"
