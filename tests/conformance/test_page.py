"""The page about the suite names existing tests, and each scenario says what it shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "prove-it-on-your-server.md"


def scenarios() -> dict[str, list[ast.FunctionDef]]:
    """Return all tests that take a ``system``, by module."""
    return {path.name: found for path in HERE.glob("test_*.py") if (found := scenarios_of(path))}


def scenarios_of(path: Path) -> list[ast.FunctionDef]:
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    return [
        function
        for function in functions
        if function.name.startswith("test_") and "system" in {argument.arg for argument in function.args.args}
    ]


def test_every_scenario_says_what_it_shows() -> None:
    assert [
        test.name for tests in scenarios().values() for test in tests if not ast.get_docstring(test)
    ] == []


def test_every_test_on_the_page_exists() -> None:
    names = {test.name for tests in scenarios().values() for test in tests}
    assert set(re.findall(r"`(test_[a-z_]+)`", PAGE.read_text())) <= names


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
