from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings

from .workers import STILL


@pytest.fixture
def still() -> Iterator[None]:
    """Disable all periodic work: discovery, lease renewal and deletion run only when the test calls them."""
    with override_settings(MQUEUE=STILL):
        yield
