"""Choose the system under test: ``MQUEUE_CONFORMANCE=module:Class``, or this repository's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from .handling import DIRECTORY, Notes
from .system import System

VARIABLE = "MQUEUE_CONFORMANCE"
OURS = "tests.conformance.ours:System"


def implementation() -> type[System]:
    module, _, name = os.environ.get(VARIABLE, OURS).partition(":")
    found: type[System] = getattr(import_module(module), name)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the scenarios as the implementation requests."""
    for item in items:
        if "system" in getattr(item, "fixturenames", ()) and item.path.parent == Path(__file__).parent:
            for mark in implementation().marks:
                item.add_marker(mark)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """Return the notes that this test's workers write."""
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    return Notes(tmp_path)


@pytest.fixture
def system(notes: Notes) -> Iterator[System]:
    """Yield the system under test. It is empty, and its leases outlast the test."""
    with implementation()() as entered:
        yield entered
