from __future__ import annotations

from collections.abc import Iterator

import pytest

from .hanging import Hanging


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    found = Hanging(monkeypatch)
    yield found
    found.let_go()
