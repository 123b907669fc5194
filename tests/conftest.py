"""Start a server for the test run, and name it in pytest's header.

With ``DATABASE_URL`` the tests use that server. Without it, a private server runs until the tests end: MariaDB, or
MySQL with ``MQUEUE_TEST_SERVER=mysql``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec

import hypothesis
import pytest
from asgiref.sync import SyncToAsync
from django.db import connections
from pytest_django import DjangoDbBlocker

from tests.own_server import OwnServer, own_server_of_kind
from tests.servers import adopt, kind_of_run, version_of_run
from tests.support import lock_hygiene
from tests.support.durations import Recorder, leave_out_slow, leave_to_the_other_server, seconds_of, slow
from tests.support.fixtures import fast as fast
from tests.support.fixtures import repeatable_read as repeatable_read
from tests.support.sampling import changed_files, timed_sample

_running = ExitStack()

HOLDING = {"Background", "HeldTransaction", "Stopped", "RawConnection", "raw_connection"}
"""A module that imports one of these has tests that hold locks."""

PART = 8
"""A sample contains one in ``PART`` of the exhaustive tests and of the slow tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", metavar="SEED", help="take a part of the exhaustive tests, which this word chooses"
    )
    parser.addoption(
        "--seed", help="take no sample; this word chooses the model's stories and the proof's faults"
    )
    parser.addoption(
        "--half", type=int, choices=[0, 1], help="in a sample, share the slow tests with the other server"
    )
    parser.addoption("--base", metavar="COMMIT", help="in a sample, run what changed since then, too")
    parser.addoption("--quick", action="store_true", help="leave out what was recorded as slow")
    parser.addoption("--long", action="store_true", help="also what is marked long")
    parser.addoption(
        "--record-durations", action="store_true", help="write what the tests take to tests/durations.json"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell makes background programs ignore SIGINT. All processes of the tests would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile(
        "tests", deadline=None
    )  # No test depends on the speed of the machine.
    hypothesis.settings.load_profile("tests")
    if config.option.record_durations and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config.option.quick))
    if "DATABASE_URL" in os.environ or _runs_no_test(config) or _leaves_tests_to_others(config):
        return
    from example_project.environment.database import database
    from example_project.environment.errors import EnvironmentProblem

    try:
        url = _running.enter_context(database(kind_of_run()))
    except EnvironmentProblem as problem:
        raise pytest.UsageError(str(problem)) from problem
    os.environ["DATABASE_URL"] = url
    _running.callback(os.environ.pop, "DATABASE_URL")
    adopt(url)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from django.test import LiveServerTestCase

    for item in items:
        if isinstance(item, pytest.Function) and item.cls and issubclass(item.cls, LiveServerTestCase):
            item.add_marker(pytest.mark.once)
    if not config.option.long:
        _leave_out("long", config, items)
    if find_spec("pyspark") is None:
        _leave_out("spark", config, items)
    if config.option.quick:
        leave_out_slow(config, items)
    if config.option.sample:
        _take_a_part(config, items)
        if config.option.half is not None:
            leave_to_the_other_server(config.option.half, config.option.sample, config, items)


def _leave_out(mark: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(mark)])
    items[:] = [item for item in items if not item.get_closest_marker(mark)]


def _take_a_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect most exhaustive and most slow tests.

    Slow tests of a changed file stay, those marked ``always``, and those that the quick lane has chosen.
    """
    changed = changed_files(config.option.base) if config.option.base else set()
    many = [item for item in items if item.get_closest_marker("exhaustive")]
    many += [item for item in slow(items) if not (config.option.quick or _always_runs(item, changed))]
    seconds = {item.nodeid: took for item, took in seconds_of(many).items()}
    taken = timed_sample(config.option.sample, "part", seconds, PART)
    left_out = {item for item in many if item.nodeid not in taken}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _always_runs(item: pytest.Item, changed: set[str]) -> bool:
    """Return whether each sample has this test: for its mark ``always``, or for a changed file that it depends on."""
    always = item.get_closest_marker("always")
    files = (item.nodeid.partition("::")[0], *(always.args if always else ()))
    return bool(always and not always.args) or any(name.startswith(files) for name in changed)


def pytest_sessionstart() -> None:
    from tests.support.emptying import empty_quickly  # models: Django is set up by now

    empty_quickly()
    lock_hygiene.watch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and HOLDING & vars(item.module).keys():
        from tests.support.emptying import forget_deleted_rows

        forget_deleted_rows()


def pytest_unconfigure() -> None:
    _running.close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the server and its version, the sample of exhaustive tests, and the run's seed."""
    if _runs_no_test(config):
        return []
    own = _leaves_tests_to_others(config) and "DATABASE_URL" not in os.environ
    sample, seed = config.getoption("--sample"), _seed_of_run(config)
    return [
        f"database: {f'{kind_of_run()}, a server for each process' if own else version_of_run()}",
        f"exhaustive tests: {'a sample' if sample else 'all'}{f', seed {seed}' if seed else ''}",
    ]


def _leaves_tests_to_others(config: pytest.Config) -> bool:
    """Return True in the pytest-xdist process that distributes the tests. Each other process starts its own server."""
    return bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")


def _runs_no_test(config: pytest.Config) -> bool:
    option = config.option
    return bool(option.collectonly or option.help or option.version or option.markers or option.showfixtures)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    from tests.support.emptying import empty_anew

    with django_db_blocker.unblock():
        empty_anew(connections["default"])


@pytest.fixture(autouse=True)
def statements_that_lock_name_their_index() -> Iterator[None]:
    """Fail if a locking statement of the package named no index (see ``tests/support/lock_hygiene.py``)."""
    yield
    found = lock_hygiene.violations()
    assert not found, "\n".join(["These statements lock rows and name no index:", *found])


@pytest.fixture(autouse=True)
def connections_of_asynchronous_code_end_with_the_test() -> Iterator[None]:
    """Close the connections of the one thread in which ``sync_to_async`` runs. A test may have killed them."""
    yield
    if SyncToAsync.single_thread_executor._threads:
        SyncToAsync.single_thread_executor.submit(connections.close_all).result()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> str | None:
    """Return the word that chooses the sample of exhaustive tests (see ``tests/support/sampling.py``).

    None means that all exhaustive tests run.
    """
    seed: str | None = request.config.getoption("--sample")
    return seed


@pytest.fixture(scope="session")
def seed_of_run(request: pytest.FixtureRequest) -> str | None:
    """Return the word that chooses the model's stories and the proof's faults, also if all exhaustive tests run.

    None means that they are the same in each run.
    """
    return _seed_of_run(request.config)


def _seed_of_run(config: pytest.Config) -> str | None:
    seed: str | None = config.getoption("--sample") or config.getoption("--seed")
    return seed


@pytest.fixture
def own_server(django_db_blocker: DjangoDbBlocker) -> Iterator[OwnServer]:
    """A migrated server that only this test uses. The test may stop, kill and restart it."""
    with django_db_blocker.unblock(), own_server_of_kind(kind_of_run()) as server:
        yield server
