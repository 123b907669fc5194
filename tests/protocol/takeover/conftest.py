from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings

from .workers import PATIENT


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    with override_settings(MQUEUE=PATIENT):
        yield
