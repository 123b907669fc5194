from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fixtures import fast

from .hanging import Hanging

__all__ = ["fast", "hanging"]


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    found = Hanging()
    yield found
    found.let_go()
