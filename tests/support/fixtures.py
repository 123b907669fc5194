"""Fixtures that several folders of tests import in their ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings

from tests.support.processes import FAST


@pytest.fixture
def fast() -> Iterator[None]:
    """Short leases and quick looks, as worker processes of tests have them."""
    with override_settings(MQUEUE=FAST):
        yield
