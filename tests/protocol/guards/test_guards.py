"""A guard is worth what its tests notice: each is taken out of a copy of the package, and they fail."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
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
    Run,
    copy_of_the_project,
    database_url_of,
    needs_spark,
    run_tests,
    take_out,
)

pytestmark = [pytest.mark.once, pytest.mark.timeout(900), pytest.mark.django_db]

AT_ONCE = 2
"""Copies that are tested at a time, each with a database of its own."""
SAMPLE = 10
"""A run with ``--sample`` takes out one in so many of the guards, and those that may have changed: at most ``CHANGED``
of those whose code or tests differ from the commit ``--base``."""
CHANGED = 30


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    seed, base = (metafunc.config.getoption(name) for name in ("--sample", "--base"))
    mutations = sample(seed, "guards", MUTATIONS, SAMPLE, always=changed(seed, base) if seed and base else ())
    if metafunc.function is test_without_the_guard_its_tests_fail:
        marks = [[pytest.mark.spark] if any(map(needs_spark, m.tests)) else [] for m in mutations]
        cases = [pytest.param(m, marks=mark) for m, mark in zip(mutations, marks, strict=True)]
    else:
        tests = {test for m in mutations for test in m.tests if not needs_spark(test)}
        cases = [pytest.param(Mutation("nothing is taken out", "", (), tuple(sorted(tests))))]
    metafunc.parametrize("mutation", cases, ids=lambda mutation: mutation.guard)


def changed(seed: str, base: str) -> list[Mutation]:
    """Return guards whose code or tests differ from a commit: at most ``CHANGED``, which the seed chooses."""
    files = changed_files(base)
    found = [
        mutation
        for mutation in MUTATIONS
        if any(f"django_mqueue/{edit.file}" in files for edit in mutation.edits)
        or any(f"tests/{test.partition('::')[0]}" in files for test in mutation.tests)
    ]
    return Random(f"{seed} changed guards").sample(found, min(len(found), CHANGED))


@pytest.fixture(scope="module")
def databases(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[list[str]]:
    """Names beside this run's own database, and what the copies' tests leave of them is dropped."""
    with django_db_blocker.unblock():
        own = str(connections["default"].settings_dict["NAME"]).removeprefix("test_")
        names = [f"{own}_guards_{number}" for number in range(AT_ONCE)]
        yield names
        with raw_connection() as server:
            for name in names:
                for leftover in (name, f"{name}_other", f"{name}_tables", f"{name}_tables_other"):
                    server.execute(f"DROP DATABASE IF EXISTS `test_{leftover}`")


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, databases: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[tuple[Path, Run]]]]:
    """The runs of those mutations whose tests were selected, in their order, a few at a time."""
    selected = [
        mutation
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__)
        for mutation in item.callspec.params.values()
        if isinstance(mutation, Mutation)
    ]
    free: SimpleQueue[str] = SimpleQueue()
    for name in databases:
        free.put(database_url_of(name))

    def run(mutation: Mutation, place: Path) -> tuple[Path, Run]:
        take_out(mutation, copy_of_the_project(place))
        url = free.get()
        try:
            return place, run_tests(place, mutation, url)
        finally:
            free.put(url)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            mutation.guard: pool.submit(run, mutation, tmp_path_factory.mktemp("guard"))
            for mutation in selected
        }
        pool.shutdown(cancel_futures=True)


def test_with_all_guards_these_tests_pass(
    mutation: Mutation, runs: dict[str, Future[tuple[Path, Run]]]
) -> None:
    """In such a copy, run in the same way: so what fails without a guard fails for want of it."""
    place, run = runs[mutation.guard].result()
    assert run.package.is_relative_to(place), "the tests ran another package"
    assert run.code == 0, run.output
    assert set(run.passed) == {f"tests/{test}" for test in mutation.tests}


def test_without_the_guard_its_tests_fail(
    mutation: Mutation, runs: dict[str, Future[tuple[Path, Run]]]
) -> None:
    place, run = runs[mutation.guard].result()
    assert run.package.is_relative_to(place), "the tests ran another package"
    assert run.code == 1, run.output
    failed = {failure.test for failure in run.failures if failure.error != AROUND}
    assert failed == {f"tests/{test}" for test in mutation.tests}, run.output
    broken = [failure for failure in run.failures if failure.error in NO_MUTATION]
    assert not broken, f"the edit broke the program:\n{run.output}"
