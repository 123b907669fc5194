"""Messages of the launchers."""

from __future__ import annotations

import sys
import textwrap

WIDTH = 100


def step(text: str) -> None:
    """Print one line about the current step."""
    print(f"==> {text}", flush=True)


def complain(text: str) -> None:
    print(f"!!! {text}", file=sys.stderr, flush=True)


def banner(lines: list[str]) -> str:
    """Return the lines in a conspicuous frame."""
    folded = [part for line in lines for part in textwrap.wrap(line, WIDTH) or [""]]
    width = max(len(line) for line in folded)
    bar = "!" * (width + 6)
    return "\n".join([bar, *(f"!! {line.ljust(width)} !!" for line in folded), bar])
