"""The result of each part of the run, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from example_project.environment.say import banner


@dataclass(frozen=True)
class Outcome:
    """A row of the table. If ``ok`` is None, the part did not run, and ``note`` states the reason."""

    what: str
    where: str
    ok: bool | None
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""
    seconds: float = 0.0

    def row(self) -> list[str]:
        state = {True: "ok", False: "FAILED", None: "NOT RUN"}[self.ok]
        counts = [str(number) if self._counted else "" for number in (self.passed, self.failed, self.skipped)]
        note = "the reason is below" if self.ok is None else self.note.split("\n", 1)[0][:70]
        return [
            self.what,
            self.where,
            state,
            *counts,
            f"{self.seconds:.0f} s",
            note,
        ]

    @property
    def _counted(self) -> bool:
        return bool(self.passed or self.failed or self.skipped)


def of_pytest(what: str, where: str, code: int, report: Path, seconds: float) -> Outcome:
    """Count the results in pytest's report. A pytest that did not finish counts as one failure."""
    passed = failed = skipped = 0
    if report.exists():
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            total, bad, left = (int(suite.get(name, 0)) for name in ("tests", "failures", "skipped"))
            bad += int(suite.get("errors", 0))
            passed, failed, skipped = passed + total - bad - left, failed + bad, skipped + left
    note = ""
    if code and not failed:
        failed, note = 1, f"pytest ended with {code}"
    return Outcome(what, where, code == 0, passed, failed, skipped, note, seconds)


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [
        ["what", "server", "", "passed", "failed", "skipped", "took", ""],
        *(each.row() for each in outcomes),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def missing(outcomes: Sequence[Outcome]) -> str:
    """Return a banner with each part that has a note, such as a part that did not run. '' if there is none."""
    lines: list[str] = []
    for each in outcomes:
        if each.note:
            state = {True: "NOT COMPLETE", False: "FAILED", None: "NOT RUN"}[each.ok]
            lines += [f"{state}: {each.what} on {each.where}. The reason:", *each.note.splitlines(), ""]
    return banner(lines[:-1]) if lines else ""


def totals(outcomes: Sequence[Outcome]) -> str:
    passed, failed, skipped = (
        sum(getattr(each, name) for each in outcomes) for name in ("passed", "failed", "skipped")
    )
    line = f"{passed} passed, {failed} failed"
    return f"{line}, {skipped} skipped" if skipped else line
