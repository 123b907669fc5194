"""The commands in the documents exist, and have the arguments that the documents show."""

from __future__ import annotations

import re
import shlex

import pytest
from django.core.management import load_command_class

from .blocks import DOCUMENTS, blocks, name_of, prose

pytestmark = pytest.mark.once

COMMANDS = ("mqueue", "runconsumer")
"""Commands of the package. ``test_reference`` checks those for Spark."""


def shown(command: str) -> list[tuple[str, str]]:
    """Return the places in which a command is shown, with its arguments."""
    found = []
    for document in DOCUMENTS:
        for block in blocks(document):
            for line in block.text.splitlines() if block.language == "console" else ():
                if match := re.search(rf"manage\.py {command} (.*)$", line):
                    found.append((str(block), match[1]))
        for match in re.finditer(rf"`(?:manage\.py )?{command} ([a-z][^`…]* [^`…]*)`", prose(document)):
            found.append((name_of(document), match[1]))
    return [(place, arguments) for place, arguments in found if "[" not in arguments]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_these_arguments(command: str) -> None:
    """Django's parser raises ``CommandError`` for arguments that the command does not have."""
    parser = load_command_class("django_mqueue", command).create_parser("manage.py", command)
    found = shown(command)
    assert found
    for place, arguments in found:
        try:
            parser.parse_args(shlex.split(arguments, comments=True))
        except Exception as error:
            pytest.fail(f"{place}: {command} {arguments}: {error}")


def test_verbs_that_are_named_exist() -> None:
    from django_mqueue.management.commands.mqueue import VERBS

    named = {
        (name_of(document), verb)
        for document in DOCUMENTS
        for verb in re.findall(r"`(?:manage\.py )?mqueue ([a-z]+)[` ]", prose(document))
    }
    assert named
    assert sorted((place, verb) for place, verb in named if verb not in {*VERBS, "worklist"}) == []
