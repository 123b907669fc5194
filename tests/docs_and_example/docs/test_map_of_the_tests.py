"""Each code block in ``tests/README.md`` is part of a test."""

from __future__ import annotations

import pytest

from .blocks import ROOT, Block, blocks

TESTS = ROOT / "tests"


def stripped(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"


@pytest.mark.parametrize("block", [b for b in blocks(TESTS / "README.md") if b.language == "python"], ids=str)
def test_the_code_stands_in_a_test(block: Block) -> None:
    """The comparison ignores indentation."""
    assert any(stripped(block.text) in stripped(path.read_text()) for path in TESTS.rglob("*.py"))
