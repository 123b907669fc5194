"""A browser for the tests of the admin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture
def chrome(tmp_path: Path) -> Iterator[Chrome]:
    from tests.support.browser import running_chrome  # Most tests of this folder need no browser.

    with running_chrome(tmp_path / "profile") as driver:
        yield driver
