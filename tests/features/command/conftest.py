from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each terminal the same width, because a table cuts payloads to the width that is left."""
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def mqueue() -> Run:
    """Run a verb, and return its output."""

    def run(*arguments: object) -> str:
        out = io.StringIO()
        call_command("mqueue", *map(str, arguments), stdout=out)
        return out.getvalue()

    return run


@pytest.fixture
def mqueue_json(mqueue: Run) -> Callable[..., dict[str, Any]]:
    """Run a verb with ``--json``, and return its document."""

    def run(*arguments: object) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(mqueue(*arguments, "--json"))
        return document

    return run


@pytest.fixture
def failing() -> Callable[..., tuple[dict[str, Any], str]]:
    """Run a verb that exits with status 1. Return its document and the reasons."""

    def run(*arguments: object) -> tuple[dict[str, Any], str]:
        out = io.StringIO()
        with pytest.raises(CommandError) as caught:
            call_command("mqueue", *map(str, arguments), "--json", stdout=out)
        return json.loads(out.getvalue()), str(caught.value)

    return run
