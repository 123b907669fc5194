"""A module imports only from its own layer and from lower layers, and only ``store/`` contains SQL."""

from __future__ import annotations

import ast
import graphlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import django_mqueue

PACKAGE = Path(django_mqueue.__file__).parent

LEVELS = [
    {"exceptions"},
    {"policy", "messages", "results", "conf", "printing", "drawing"},
    {"models", "signals", "tracing", "instruments"},
    {"store"},
    {"protocol"},
    {"service"},
    {"workers", "stats"},
    {"browse"},
    {
        "testing",
        "inspect",
        "pytest_plugin",
        "metrics",
        "checks",
        "command",
        "consumers",
        "doctor",
        "apps",
        "management",
        "admin",
        "tasks",
        "spark",
        "worklists",
        "__init__",
    },
    {"templatetags"},
]
"""The layers from the bottom to the top. A part may import from lower layers and from its own layer."""

NOT_LAYERED = {"migrations"}

CIRCLES = [
    {"spark/reports/page", "spark/reports/result", "spark/reports/tables"},
    {"worklists/models", "worklists/registry", "worklists/rights", "worklists/steps"},
]
"""Modules that import one another, but only for types. Do not add to this list."""

STATEMENT = re.compile(
    r"\b(SELECT\b.+\bFROM|INSERT\s+INTO|REPLACE\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|SHOW\s+\w+|LOCK\s+IN|FOR\s+UPDATE)\b",
    re.S,
)
TABLE = re.compile(r"\bqueue_(messages|delivery_state|partition_leases|offsets|subscriber_heartbeats)\b")


@cache
def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if part_of(path) not in NOT_LAYERED)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def has_sql(path: Path) -> bool:
    return (
        part_of(path) == "store"
        or path.parent == PACKAGE / "spark" / "sql"
        or path == PACKAGE / "worklists" / "figures.py"
    )


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE).with_suffix(""))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def level(part: str) -> int:
    return next(number for number, parts in enumerate(LEVELS) if part in parts)


def imported_parts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, part of the package) for each import, at the top of the module or inside a function."""
    here = ("django_mqueue", *path.relative_to(PACKAGE).with_suffix("").parts)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            full = [*base, *(node.module or "").split(".")] if node.module else base
            names = [[*full, alias.name] for alias in node.names] if full == ["django_mqueue"] else [full]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "django_mqueue":
                yield node.lineno, name[1] if len(name) > 1 else "__init__"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) for each string of a module that is not a docstring."""
    tree = tree_of(path)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down_only(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return  # The public module names all parts, and loads each on first use.
    for line, imported in imported_parts(path):
        assert level(imported) <= level(part), (
            f"{path.name}:{line}: {part} imports {imported}, which is above it"
        )


def imported_modules(path: Path, *, for_types: bool) -> set[Path]:
    """Return the modules of the package that a module imports, at its top or inside a function.

    ``for_types``: also those that it imports only under ``TYPE_CHECKING``.
    """
    here = ("django_mqueue", *path.relative_to(PACKAGE).with_suffix("").parts)
    tree = tree_of(path)
    only_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (for_types or id(node) not in only_types):
            base = PACKAGE.parent.joinpath(*here[: len(here) - node.level] if node.level else ())
            base = base.joinpath(*(node.module or "").split("."))
            found |= {base / f"{alias.name}.py" for alias in node.names} | {base.with_suffix(".py")}
    return found & set(modules())


def test_no_modules_import_each_other() -> None:
    """``static_order`` raises ``CycleError``, which names the circle."""
    graph = {path: imported_modules(path, for_types=False) for path in modules()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(graph)


def test_few_modules_import_each_other_for_types() -> None:
    graph = {name_of(path): set(map(name_of, imported_modules(path, for_types=True))) for path in modules()}
    for circle in CIRCLES:
        for name in circle:
            graph[name] -= circle
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(graph)


def test_folders_are_small_enough_to_be_read() -> None:
    folders = Counter(path.parent for path in modules() if path.name != "__init__.py")
    assert {folder: count for folder, count in folders.items() if count > 15} == {}


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: str(path.relative_to(PACKAGE).parent)
)
def test_each_package_says_what_it_may_import(path: Path) -> None:
    assert re.search(r"\bimports?\b", ast.get_docstring(tree_of(path)) or "")


def test_imports_are_seen_at_all() -> None:
    """The helpers find imports and statements, so the tests of this file do check something."""
    assert {part for _, part in imported_parts(PACKAGE / "protocol" / "claiming.py")} >= {
        "policy",
        "store",
        "protocol",
    }
    assert any(STATEMENT.search(text) for _, text in texts(PACKAGE / "store" / "leases.py"))


def test_the_public_face_loads_no_models_before_it_is_asked() -> None:
    """Django imports the package before the apps are ready. An import of models at that moment fails."""
    body = tree_of(PACKAGE / "__init__.py").body
    eager = {str(node.module) for node in body if isinstance(node, ast.ImportFrom) and node.level}
    assert eager <= {"exceptions", "messages", "policy.backoff"}


@pytest.mark.parametrize(
    "path",
    [path for path in modules() if not has_sql(path)],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_sql_is_in_the_store_alone(path: Path) -> None:
    """Other modules than those with ``has_sql`` contain no statement and no ``execute``. Only models name tables."""
    part = part_of(path)
    assert "RawSQL" not in path.read_text()
    for line, text in texts(path):
        assert not STATEMENT.search(text), f"{path.name}:{line}: a statement outside of store: {text!r}"
        if part != "models":
            assert not TABLE.search(text), f"{path.name}:{line}: a table's name outside of store: {text!r}"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Attribute) and node.attr in ("execute", "executemany", "raw"):
            raise AssertionError(f"{path.name}:{node.lineno}: {ast.unparse(node)} outside of store")


@pytest.mark.parametrize(
    "path", [path for path in modules() if part_of(path) == "policy"], ids=lambda path: path.name
)
def test_policy_decides_without_database_or_clock(path: Path) -> None:
    """The policy uses only its arguments. Exception: new ids contain the time, which keeps the index in order."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not any(name.startswith("django.db") for name in names), f"{path.name}:{node.lineno}"
            assert "time" not in names or path.name == "ids.py", f"{path.name}:{node.lineno}: a clock"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_short_enough_to_be_read(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 375, "one subject a file, and about 300 lines"
