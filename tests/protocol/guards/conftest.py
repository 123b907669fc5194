from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings

from tests.support.subscribers import QUICK


@pytest.fixture
def quick() -> Iterator[None]:
    with override_settings(MQUEUE=QUICK):
        yield


@pytest.fixture
def kept() -> Iterator[None]:
    """Use the quick settings, but delete nothing."""
    with override_settings(MQUEUE={**QUICK, "RETENTION": 3600}):
        yield
