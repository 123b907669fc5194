"""Django's own tests of Tasks, from its source distribution, run with this backend in place of Django's.

On Django 5.2 they are those of Django 6.0, and run with the backport in place of ``django.tasks``: its distribution has
no tests.

The distribution is downloaded from the package index at the time of the test. Nothing of it is part of this project.
Left out as a whole: the tests of Django's dummy backend and of custom backends, which test those classes, and the one
test that a job of the immediate backend has run before its transaction ends.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tarfile
import unittest
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import django
import pytest
from django.test import override_settings

from django_mqueue.tasks import MQueueBackend
from django_mqueue.tasks.compat import TaskResult
from django_mqueue.testing import drain

pytestmark = pytest.mark.django_db(transaction=True)


class RecordingBackend(MQueueBackend):
    """Has the attributes of Django's dummy backend, which its tests use."""

    results: list[TaskResult[Any]]

    def clear(self) -> None:
        self.results = []

    def enqueue_all(self, calls: Any) -> list[TaskResult[Any]]:
        found = super().enqueue_all(calls)
        self.results += found
        return found


class InlineBackend(MQueueBackend):
    """Runs each job at once, as Django's immediate backend does."""

    def enqueue_all(self, calls: Any) -> list[TaskResult[Any]]:
        results = super().enqueue_all(calls)
        drain()
        for result in results:
            result.refresh()
        return results


IS_BACKPORT = django.VERSION < (6, 0)
BACKPORTED = "6.0"
"""The version of Django whose tests run with the backport."""
IMMEDIATE = {
    "test_using_correct_backend": "It asserts the class of Django's backend.",
    "test_cannot_get_result": "This backend has results.",
    "test_cannot_refresh_result": "This backend has results.",
    "test_cannot_pass_run_after": "This backend supports run_after.",
    "test_throws_keyboard_interrupt": "In a worker it is a failed attempt: signals go to the process, not to a job.",
    "test_validate_on_enqueue": "Its settings name Django's backend. test_queues tests the same.",
    "test_validate_on_aenqueue": "Its settings name Django's backend. test_queues tests the same.",
}
TASKS = {
    "test_using_correct_backend": "It asserts the class of Django's backend.",
    "test_get_backend": "It asserts the class of Django's backend.",
    "test_get_result": "The result has the database's time, and that of enqueue the machine's.",
    "test_get_result_async": "The result has the database's time, and that of enqueue the machine's.",
    "test_refresh_result": "It reads the database in an event loop, which Django refuses.",
}
"""Django's tests that are left out, with the reason."""


def use_backport() -> None:
    """Let ``django.tasks`` be the backport. Without that name, Django's tests cannot be imported."""
    for part in (
        "",
        ".base",
        ".backends",
        ".backends.base",
        ".backends.dummy",
        ".backends.immediate",
        ".exceptions",
    ):
        sys.modules[f"django.tasks{part}"] = import_module(f"django_tasks{part}")
    exceptions: Any = sys.modules["django.tasks.exceptions"]
    for name in (
        "InvalidTask",
        "InvalidTaskBackend",
    ):  # Up to version 0.12 of the backport they end in "Error".
        if not hasattr(exceptions, name):
            setattr(exceptions, name, getattr(exceptions, f"{name}Error"))
    logging.getLogger("django_tasks").parent = logging.getLogger("django.tasks")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Download the source distribution of the installed Django, and make its tests importable."""
    folder = tmp_path_factory.mktemp("django")
    version = BACKPORTED if IS_BACKPORT else django.get_version()
    command: list[str | Path] = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--ignore-requires-python", "--no-binary", "django", "--dest", folder, f"django=={version}",
    ]  # fmt: skip
    if subprocess.run(command).returncode:
        pytest.skip(f"the package index offers no source distribution of Django {version} now")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    tests = folder / f"django-{version}" / "tests"
    sys.path.insert(0, str(tests))
    if IS_BACKPORT:
        use_backport()
    try:
        yield tests
    finally:
        sys.path.remove(str(tests))
        for name in [name for name in sys.modules if IS_BACKPORT and name.startswith("django.tasks")]:
            del sys.modules[name]
        logging.getLogger("django_tasks").parent = logging.getLogger()


def run(case: type[unittest.TestCase], settings: Mapping[str, Any], left_out: Mapping[str, str]) -> int:
    """Run a class of Django's tests with other ``TASKS``. Return the number of its tests that ran."""

    def start(self: unittest.TestCase) -> None:
        # Inside the settings of Django's class, which name Django's backends.
        self.enterContext(override_settings(TASKS=settings))
        case.setUp(self)

    names = unittest.TestLoader().getTestCaseNames(case)
    assert left_out.keys() <= set(names), "a test that is left out exists no more"
    chosen = [name for name in names if name not in left_out]
    ours = type(case.__name__, (case,), {"setUp": start, "databases": {"default"}})
    suite = unittest.TestSuite(ours(name) for name in chosen)
    result = unittest.TestResult()
    suite.run(result)
    problems = [f"{test}\n{text}" for test, text in [*result.failures, *result.errors]]
    assert not problems, "\n".join(problems)
    return result.testsRun - len(result.skipped)


def backend(name: str, queues: Sequence[str] = ("default",)) -> dict[str, Any]:
    return {"BACKEND": f"{__name__}.{name}", "QUEUES": list(queues)}


def test_the_tests_of_the_immediate_backend(sources: Path) -> None:
    case = import_module("tasks.test_immediate_backend").ImmediateBackendTestCase
    assert run(case, {"default": backend("InlineBackend")}, IMMEDIATE) >= (11 if IS_BACKPORT else 12)


def test_the_tests_of_tasks(sources: Path) -> None:
    case = import_module("tasks.test_tasks").TaskTestCase
    settings = {
        "default": backend("RecordingBackend", ["default", "queue_1"]),
        "immediate": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend", "QUEUES": []},
        "missing": {"BACKEND": "does.not.exist"},
    }
    assert run(case, settings, TASKS) >= (29 if IS_BACKPORT else 34)
