from __future__ import annotations

from tests.support.fixtures import fast

__all__ = ["fast"]
