"""Follow the tutorial as a reader does: type its commands, save its files, run its SQL, and compare the output.

The reader installs the wheel into an empty virtual environment, so this is also the test of what users install.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_project.environment.database import FLAVOURS
from example_project.environment.errors import EnvironmentProblem
from example_project.environment.server import private_server
from tests.servers import kind_of_run

from .blocks import Block, blocks
from .project import TUTORIAL
from .reader import OtherTerminal, Reader, shows


@pytest.fixture
def reader(tmp_path: Path, wheel: Path) -> Iterator[Reader]:
    """Use a server of its own, because the tutorial creates an account and a database with fixed names."""
    try:
        flavour = FLAVOURS[kind_of_run()]()
    except EnvironmentProblem as problem:
        pytest.skip(f"no server for the tutorial: {problem}")
    directory = tmp_path / "tutorial"
    directory.mkdir()
    with private_server(flavour) as server:
        yield Reader(directory, wheel, server.place.socket)


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with its expected output lines."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def follow(reader: Reader, block: Block, background: list[OtherTerminal]) -> None:
    """Run the commands of a console block, and compare their output. ``PROCESS`` is the newest worker."""
    for command, expected in commands(block):
        if block.has("background"):
            background.append(OtherTerminal(reader.start(command)))
            background[-1].wait_for(expected)
        elif block.has("kill"):
            assert command == "kill -9 PROCESS"
            assert background[-1].end(signal.SIGKILL) == -signal.SIGKILL
        elif block.has("stop"):
            assert command == "kill PROCESS"
            assert background[-1].end(signal.SIGTERM) == 0
            background[-1].wait_for(expected)
        else:
            output = reader.run(command)
            assert shows(expected, output), f"{block}: {command}\nexpected {expected}\ngot {output}"


@pytest.mark.always
@pytest.mark.timeout(900)
def test_the_tutorial_works_from_its_first_step_to_its_last(reader: Reader) -> None:
    """Each command runs in order and prints what the tutorial shows. One command kills a worker."""
    background: list[OtherTerminal] = []
    try:
        for block in blocks(TUTORIAL):
            if block.file is not None:
                reader.save(block)
            elif block.language == "sql":
                reader.execute(block)
            elif block.language == "console":
                follow(reader, block, background)
    finally:
        for each in background:
            each.close()
    assert len(background) == 2, "the tutorial starts a worker, kills it, and starts it again"
    location = reader.run("python -c 'import django_mqueue; print(django_mqueue.__file__)'")
    assert str(reader.directory) in location, "the tutorial uses the installed wheel"
