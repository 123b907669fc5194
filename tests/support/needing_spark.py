"""Find the test modules that need Spark by their marks.

It reads their text and does not import them, because they import Spark or Arrow.
"""

from __future__ import annotations

import re
from pathlib import Path

_MARKED = re.compile(r"^pytestmark = .*\bpytest\.mark\.spark\b", re.MULTILINE)


def all_need_spark(module: Path) -> bool:
    """Return True if all tests of the module need Spark."""
    return _MARKED.search(module.read_text()) is not None
