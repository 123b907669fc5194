"""A browser for the tests of the admin, and settings that several of its modules use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.core.cache import cache
from django.test import override_settings

from django_mqueue.browse import bulk_redrive

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    from tests.support.browser import running_chrome  # Most tests of this folder need no browser.

    with running_chrome(tmp_path / "profile") as driver:
        yield driver


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a step to four dead letters, read two at a time."""
    monkeypatch.setattr(bulk_redrive, "STEP_DEAD_LETTERS", 4)
    monkeypatch.setattr(bulk_redrive, "STEP", 3600.0)
    monkeypatch.setattr(bulk_redrive, "AT_ONCE", 2)


@pytest.fixture
def nothing_remembered() -> Iterator[None]:
    """Clear the cache of figures. Leases do not expire during a test."""
    cache.clear()
    with override_settings(MQUEUE={"LEASE_DURATION": 600}):
        yield
