#!/usr/bin/env python3
"""Run the checks and the tests: ``python3 tests/run.py [--quick] [--server mariadb|mysql|all] [pytest…]``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    from tests.support.runner.options import parse
    from tests.support.runner.outcome import missing, table, totals
    from tests.support.runner.plan import outcomes_of

    outcomes = outcomes_of(parse(arguments))
    print(f"\n{table(outcomes)}\n")
    if absent := missing(outcomes):
        print(f"{absent}\n")
    print(totals(outcomes), flush=True)
    return 1 if any(each.ok is False for each in outcomes) else 0


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    sys.path[0] = str(ROOT)
    from example_project.environment.launch import launch

    launch(main)
