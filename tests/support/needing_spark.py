"""Which test modules need Spark, as their marks say: told without importing them, because they import it, or Arrow."""

from __future__ import annotations

import re
from pathlib import Path

_MARKED = re.compile(r"^pytestmark = .*\bpytest\.mark\.spark\b", re.MULTILINE)


def all_need_spark(module: Path) -> bool:
    """Whether all tests of a module do."""
    return _MARKED.search(module.read_text()) is not None
