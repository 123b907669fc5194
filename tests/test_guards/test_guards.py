"""A guard is worth what its tests notice: each is taken out of a copy of the package, and they fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.support.threads import raw_connection

from .mutations import MUTATIONS
from .mutations.mutation import Mutation
from .taking_out import AROUND, NO_MUTATION, copy_of_the_project, run_tests, take_out

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A name for the copies' database, which all of them use; beside this run's own."""
    with django_db_blocker.unblock():
        name = f"{connections['default'].settings_dict['NAME'].removeprefix('test_')}_guards"
        yield name
        with raw_connection() as server:
            for leftover in (name, f"{name}_tables"):
                for database in (f"test_{leftover}", f"test_{leftover}_other"):
                    server.execute(f"DROP DATABASE IF EXISTS `{database}`")


def test_with_all_guards_these_tests_pass(database: str, tmp_path: Path) -> None:
    """In the same copy, run in the same way: so what fails without a guard fails for want of it."""
    tests = sorted({test for mutation in MUTATIONS for test in mutation.tests})
    run = run_tests(copy_of_the_project(tmp_path), tests, database, keep=True)
    assert run.package.is_relative_to(tmp_path)
    assert run.code == 0, run.output
    assert len(run.passed) == len(tests)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.guard)
def test_without_the_guard_its_tests_fail(mutation: Mutation, database: str, tmp_path: Path) -> None:
    place = copy_of_the_project(tmp_path)
    take_out(mutation, place)
    name = f"{database}_tables" if mutation.changes_tables else database
    run = run_tests(place, mutation.tests, name, keep=not mutation.changes_tables)
    assert run.package.is_relative_to(tmp_path), "the tests ran another package"
    assert run.code == 1, run.output
    failed = {failure.test for failure in run.failures if failure.error != AROUND}
    assert failed == {f"tests/{test}" for test in mutation.tests}, run.output
    broken = [failure for failure in run.failures if failure.error in NO_MUTATION]
    assert not broken, f"the edit broke the program:\n{run.output}"
