"""A reader of the tutorial: an empty directory, a shell, and a database server of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import MySQLdb

from example_project.environment.lineage import die_with_parent

from .blocks import Block
from .project import PATIENCE

ACTIVATE = ". venv/bin/activate"


class Reader:
    """Types commands into a shell, as they are written, and saves files.

    ``pip`` finds ``wheel`` instead of the package index, and downloads nothing. Other packages come from the
    environment of the tests.
    """

    def __init__(self, directory: Path, wheel: Path, socket: Path) -> None:
        self.directory, self.socket = directory, socket
        self.activated = False
        programs = directory.parent / "programs"
        programs.mkdir()
        (programs / "python3").symlink_to(getattr(sys, "_base_executable", None) or sys.executable)
        self.environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "MYSQL_UNIX_PORT": str(socket),  # The client library's default socket is that of another server.
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_FIND_LINKS": str(wheel.parent),
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "error::RuntimeWarning",
        }

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a command. In the end, the process is the program itself, not its shell."""
        before = f"{ACTIVATE} && " if self.activated else ""
        return subprocess.Popen(
            ["sh", "-c", f"{before}exec {command}"],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )

    def run(self, command: str) -> str:
        """Return the output. Fail with it unless the command succeeds."""
        if command == ACTIVATE:
            self.activated = True
            return ""
        process = self.start(command)
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except BaseException:
            process.kill()
            process.wait()
            raise
        assert process.returncode == 0, f"{command} ended with {process.returncode}:\n{output}"
        if command.startswith("python -m pip install"):
            self._add_other_packages()
        return output

    def _add_other_packages(self) -> None:
        """Add what ``pip`` was told to leave out: Django and the other requirements of the package."""
        (site,) = self.directory.glob("venv/lib/python*/site-packages")
        folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        (site / "requirements.pth").write_text("\n".join(sorted(folders)) + "\n")
        admin = self.directory / "venv" / "bin" / "django-admin"
        admin.write_text(f'#!/bin/sh\nexec {self.directory}/venv/bin/python -m django "$@"\n')
        admin.chmod(0o755)

    def save(self, block: Block) -> None:
        """Write the block into its file. Append if the file exists, except to the models, which the block replaces."""
        assert block.file is not None
        path = self.directory / block.file
        before = path.read_text() + "\n\n" if path.exists() and block.file != "shop/models.py" else ""
        path.write_text(before + block.text)

    def execute(self, block: Block) -> None:
        """Run the statements of an SQL block as the server's administrator."""
        text = "\n".join(line.partition("--")[0] for line in block.text.splitlines())
        server = MySQLdb.connect(unix_socket=str(self.socket), user="root")
        try:
            with server.cursor() as cursor:
                for statement in filter(str.strip, text.split(";")):
                    cursor.execute(statement)
        finally:
            server.close()


class OtherTerminal:
    """The terminal in which the reader runs a worker."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[str]()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()

    def wait_for(self, expected: list[str]) -> None:
        with self._news:
            seen = self._news.wait_for(lambda: shows(expected, "".join(self.lines)), PATIENCE)
        assert seen, f"expected {expected}, got {self.lines}"

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.close()
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


def shows(expected: list[str], output: str) -> bool:
    """Return True if the output contains the lines. ``…`` matches any text."""
    patterns = (re.escape(line.strip()).replace("…", ".*") for line in expected)
    return all(re.search(pattern, output) for pattern in patterns)
