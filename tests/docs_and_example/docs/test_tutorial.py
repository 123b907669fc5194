"""Follow the tutorial as a reader does: write its files, run its commands, and compare the output."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from .blocks import Block, blocks
from .project import PATIENCE, TUTORIAL, Project, project_in

PREPARED = ("python3 -m venv", ". venv", "python -m pip", "django-admin", "python manage.py startapp")
"""``project_in`` has already done these steps."""


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


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with its expected output lines."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def follow(project: Project, block: Block, background: list[OtherTerminal]) -> None:
    """Run the commands of a console block, and compare their output."""
    for command, expected in commands(block):
        if command.startswith(PREPARED):
            continue
        if block.has("background"):
            background.append(OtherTerminal(project.start(*shlex.split(command))))
            background[-1].wait_for(expected)
        elif block.has("kill"):
            assert command.startswith("kill -9 ")
            assert background[-1].end(signal.SIGKILL) == -signal.SIGKILL
        elif block.has("stop"):
            assert background[-1].end(signal.SIGTERM) == 0
            background[-1].wait_for(expected)
        else:
            output = project.run(*shlex.split(command))
            assert shows(expected, output), f"{block}: {command}\nexpected {expected}\ngot {output}"


@pytest.mark.always
@pytest.mark.django_db(transaction=True)
def test_the_tutorial_works_from_its_first_step_to_its_last(tmp_path: Path) -> None:
    """Each command runs in order and prints what the tutorial shows. One command kills a worker."""
    background: list[OtherTerminal] = []
    with project_in(tmp_path, "tutorial") as project:
        try:
            for block in blocks(TUTORIAL):
                if block.file is not None:
                    project.write(block)
                elif block.language == "console":
                    follow(project, block, background)
        finally:
            for each in background:
                each.close()
    assert len(background) == 2, "the tutorial starts a worker, kills it, and starts it again"
