"""Each guard is removed from a copy of the package, and the tests that it names must fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.support.sampling import changed_files, sample
from tests.support.threads import raw_connection

from .mutations import MUTATIONS
from .mutations.mutation import Mutation
from .taking_out import (
    AROUND,
    NO_MUTATION,
    copy_of_the_project,
    database_url_of,
    needs_spark,
    run_tests,
    taken_out,
)

pytestmark = [pytest.mark.always, pytest.mark.once, pytest.mark.timeout(900), pytest.mark.django_db]

SAMPLE, SPARK_SAMPLE = 10, 30
"""A run with ``--sample`` removes one in ``SAMPLE`` of the guards, and one in ``SPARK_SAMPLE`` if their tests need
Spark. It also removes up to ``CHANGED`` guards whose code or tests differ from the commit ``--base``."""
CHANGED = 12


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seed, base = (metafunc.config.getoption(name) for name in ("--sample", "--base"))
    always = changed(seed, base) if seed and base else ()
    with_spark = [m for m in MUTATIONS if any(map(needs_spark, m.tests))]
    without = [m for m in MUTATIONS if m not in with_spark]
    with_spark = sample(seed, "guards with Spark", with_spark, SPARK_SAMPLE, always)
    mutations = sample(seed, "guards", without, SAMPLE, always) + with_spark
    if metafunc.function is test_without_the_guard_its_tests_fail:
        marks = {m.guard: [pytest.mark.spark] for m in with_spark}
        cases = [pytest.param(m, marks=marks.get(m.guard, [])) for m in mutations]
    else:
        tests = {test for m in mutations for test in m.tests if not needs_spark(test)}
        cases = [pytest.param(Mutation("nothing is taken out", "", (), tuple(sorted(tests))))]
    metafunc.parametrize("mutation", cases, ids=lambda mutation: mutation.guard)


def changed(seed: str, base: str) -> list[Mutation]:
    """Return up to ``CHANGED`` guards whose code or tests differ from a commit. The seed chooses them."""
    files = changed_files(base)
    found = [
        mutation
        for mutation in MUTATIONS
        if any(f"django_mqueue/{edit.file}" in files for edit in mutation.edits)
        or any(f"tests/{test.partition('::')[0]}" in files for test in mutation.tests)
    ]
    return Random(f"{seed} changed guards").sample(found, min(len(found), CHANGED))


@pytest.fixture(scope="module")
def url(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Yield the URL of a separate database for the copies. Drop the databases that their tests leave."""
    with django_db_blocker.unblock():
        name = f"{connections['default'].settings_dict['NAME']}_guards".removeprefix("test_")
        yield database_url_of(name)
        with raw_connection() as server:
            for leftover in (name, f"{name}_other", f"{name}_tables", f"{name}_tables_other"):
                server.execute(f"DROP DATABASE IF EXISTS `test_{leftover}`")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the copy, which all tests of a process use: to delete many copies takes minutes."""
    return copy_of_the_project(tmp_path_factory.mktemp("project"))


def test_with_all_guards_these_tests_pass(mutation: Mutation, url: str, place: Path) -> None:
    """They pass in an unchanged copy that runs in the same way. So the missing guard causes each failure."""
    run = run_tests(place, mutation, url)
    assert run.package.is_relative_to(place), "the tests ran another package"
    assert run.code == 0, run.output
    assert set(run.passed) == {f"tests/{test}" for test in mutation.tests}


def test_without_the_guard_its_tests_fail(mutation: Mutation, url: str, place: Path) -> None:
    with taken_out(mutation, place):
        run = run_tests(place, mutation, url)
    assert run.package.is_relative_to(place), "the tests ran another package"
    assert run.code == 1, run.output
    failed = {failure.test for failure in run.failures if failure.error != AROUND}
    assert failed == {f"tests/{test}" for test in mutation.tests}, run.output
    broken = [failure for failure in run.failures if failure.error in NO_MUTATION]
    assert not broken, f"the edit broke the program:\n{run.output}"
