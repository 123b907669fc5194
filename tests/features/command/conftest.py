from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command

Run = Callable[..., str]


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
