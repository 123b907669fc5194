from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings

from .workers import STILL


@pytest.fixture
def still() -> Iterator[None]:
    """Nothing happens by itself: no look at the group, no renewal, no deletion."""
    with override_settings(MQUEUE=STILL):
        yield
