from __future__ import annotations

from collections.abc import Iterator

import pytest

from .hanging import Hanging


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    found = Hanging()
    yield found
    found.let_go()
