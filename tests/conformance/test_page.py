"""The reference page lists exactly the existing scenarios."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "conformance.md"


def scenarios() -> set[tuple[str, str]]:
    """Return (module, test) of all tests that take a ``system``."""
    return {
        (path.name, node.name)
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and "system" in {argument.arg for argument in node.args.args}
    }


def listed() -> set[tuple[str, str]]:
    """Return (module, test) of the page's tables. The heading of a table names the module."""
    found: set[tuple[str, str]] = set()
    module = ""
    for line in PAGE.read_text().splitlines():
        if heading := re.match(r"^#+ .*`(test_\w+\.py)`", line):
            module = heading[1]
        elif line.startswith("#"):
            module = ""
        if module and (row := re.match(r"^\| `(test_\w+)` \|", line)):
            assert (module, row[1]) not in found, f"{row[1]} is listed twice"
            found.add((module, row[1]))
    return found


def test_every_scenario_is_on_the_page() -> None:
    assert scenarios() - listed() == set()


def test_the_page_lists_no_other() -> None:
    assert listed() - scenarios() == set()


def test_every_promise_has_a_class() -> None:
    numbers = [
        int(found[1])
        for path in HERE.glob("test_promises_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and (found := re.match(r"TestPromise(\d+)[A-Z]", node.name))
    ]
    assert sorted(numbers) == [*range(1, 12)]


def test_scenarios_know_nothing_but_the_protocol() -> None:
    """Test modules and their helpers import neither Django nor the package nor its other tests."""
    for path in HERE.glob("*.py"):
        if path.name in ("ours.py", "test_page.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            for name in names:
                assert name.split(".")[0] not in ("django", "django_mqueue", "tests", "MySQLdb"), path.name
