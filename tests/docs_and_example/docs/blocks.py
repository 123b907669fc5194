"""Fenced code blocks and links of the documentation's Markdown files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(?P<info>.*)$")


@dataclass(frozen=True)
class Block:
    """``info`` is the text after the opening fence: the language, then words for the tests."""

    document: Path
    line: int
    info: str
    text: str

    @property
    def language(self) -> str:
        return (self.info.split() or [""])[0]

    @property
    def file(self) -> str | None:
        """The file into which a reader puts this block: ``file=shop/models.py``."""
        return next(
            (word.removeprefix("file=") for word in self.info.split() if word.startswith("file=")), None
        )

    def has(self, word: str) -> bool:
        return word in self.info.split()[1:]

    def __str__(self) -> str:
        return f"{name_of(self.document)}:{self.line}"


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def blocks(document: Path) -> list[Block]:
    """Return all fenced blocks, in order. ``line`` is the number of the first line of code."""
    found, start, info, lines = [], 0, None, []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and info is None:
            info, start, lines = fence["info"].strip(), number + 1, list[str]()
        elif fence and info is not None:
            found.append(Block(document, start, info, "\n".join(lines) + "\n"))
            info = None
        elif info is not None:
            lines.append(line)
    assert info is None, f"{name_of(document)}:{start}: a code block is not closed"
    return found


def prose(document: Path) -> str:
    """Return the text without its code blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def links(document: Path) -> Iterator[str]:
    """Yield the targets of links and pictures in the prose."""
    text = re.sub(r"`[^`\n]*`", "", prose(document))
    yield from re.findall(r"\]\(([^)\s]+)\)", text)
    yield from re.findall(r'\bsrc(?:set)?="([^"]+)"', text)
    yield from re.findall(r"^\[[^\]]+\]: (\S+)$", text, flags=re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """Return the anchors of the headings, by GitHub's rule."""
    headings = re.findall(r"^#+ +(.*)$", prose(document), flags=re.MULTILINE)
    plain = (re.sub(r"[`*]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}
