"""The package uses no private name of Django, except those in ``ALLOWED``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import django

from .test_layers import PACKAGE, modules, tree_of

ALLOWED = {
    # Only models of the registry are in the site's index, and ``register`` refuses composite primary keys.
    ("admin/__init__.py", "_registry"),
    # The stream of a command. Django's wrapper adds line ends, which would break a progress bar.
    ("management/commands/mqueue_spark.py", "_out"),
    # Logs the exception of a receiver. Django's method fails for partials and objects.
    ("signals.py", "_log_robust_failure"),
    # Leaves out ``SET autocommit`` between two transactions. Only this method of a connection sends it.
    ("store/connection/session_variables.py", "_set_autocommit"),
    # Marks the transactions of ``TestCase``, which are not the caller's. Django's own check also reads it.
    ("store/connection/session.py", "_from_testcase"),
    # The field that each backend of Django's tasks sets for ``TaskResult.return_value``.
    ("tasks/results.py", "_return_value"),
    ("tasks/running.py", "_return_value"),
}
"""Module and name. The comments give the reasons."""

DOCUMENTED = {"_meta", "_state", "_default_manager", "_base_manager", "_exit", "_replace"}
"""Names that the documentation of Django or of Python describes."""

PRIVATE = re.compile(r"\b_[a-z]\w*")


@cache
def names_of_django() -> set[str]:
    sources = Path(django.__file__).parent.rglob("*.py")
    return {name for path in sources for name in PRIVATE.findall(path.read_text())} - DOCUMENTED


def used(path: Path) -> Iterator[str]:
    """Yield the private names that a module imports from Django, reads or sets on other objects, or has as a text."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django."):
            yield from (alias.name for alias in node.names if PRIVATE.match(alias.name))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def overridden(path: Path) -> Iterator[str]:
    """Yield the names with which classes of a module replace private attributes of Django's classes."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    try:
        classes = vars(import_module(name)).values()
    except ModuleNotFoundError as error:
        if str(error.name).startswith("django_mqueue"):
            raise
        return  # It needs Spark or Arrow.
    for cls in classes:
        if isinstance(cls, type) and cls.__module__ == name:
            theirs = [vars(base) for base in cls.__mro__ if base.__module__.startswith("django.")]
            yield from (
                one for one in vars(cls) if PRIVATE.match(one) and any(one in base for base in theirs)
            )


def test_private_names_of_django() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), name)
        for path in modules()
        for name in {*used(path), *overridden(path)} & names_of_django()
    }
    assert found - ALLOWED == set()
    assert [one for one in ALLOWED if one[1] not in (PACKAGE / one[0]).read_text()] == []
