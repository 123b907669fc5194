"""What every test run needs: a server, and a header that says which.

With ``DATABASE_URL`` the tests use that server. Without it a private one runs for as long as the tests:
MariaDB, or MySQL with ``MQUEUE_TEST_SERVER=mysql``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from tests.own_server import OwnServer, own_server_of_kind
from tests.servers import adopt, kind_of_run, version_of_run

_running = ExitStack()

NOT_QUICK = (
    "docs_and_example/docs/", "docs_and_example/environment/", "docs_and_example/example/", "protocol/hostile/",
    "protocol/cost/test_head.py", "features/groups/test_collection_waits_for_nobody.py", "proof/tests/test_checker_random.py",
    "features/workers/test_signals.py",
)  # fmt: skip
"""Besides what is marked ``slow`` itself: the quick lane is for units and the protocol, and takes five minutes."""

WIDE = (
    "features/signals/", "features/tracing/", "features/inspect/", "features/request/", "features/time_limits/", "features/batch/",
    "features/scheduling/test_promotion.py", "features/groups/test_positions.py", "features/dead_letters/test_redrive.py",
    "features/testing/", "admin/", "conformance/test_more_than_delivery.py", "conformance/test_operators.py",
    "conformance/test_requests.py", "conformance/test_scheduling.py",
)  # fmt: skip
"""What is beside the protocol, marked ``wide``: other versions of Python and Django may matter to it."""

ONCE = (
    "docs_and_example/docs/", "docs_and_example/example/", "unit/policy/", "spark/test_command_ending.py", "spark/test_encryption.py",
    "spark/test_java.py", "spark/test_options.py", "spark/test_ranges.py", "proof/tests/test_checker",
    "unit/test_layers.py", "unit/test_locking_statements.py", "unit/test_public_verbs.py", "features/dead_letters/test_many_letters.py",
    "docs_and_example/environment/test_lifetimes.py", "docs_and_example/environment/test_package.py", "docs_and_example/environment/test_runner.py",
    "docs_and_example/environment/test_venv.py",
)  # fmt: skip
"""What says as much on one server as on two, marked ``once``: so are tests in a browser."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", metavar="SEED", help="take a part of the exhaustive tests, which this word chooses"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts programs in the background so, and all the processes of the tests would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "DATABASE_URL" in os.environ or _runs_no_test(config):
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

    here = Path(__file__).parent
    for item in items:
        if isinstance(item, pytest.Function) and item.cls and issubclass(item.cls, LiveServerTestCase):
            item.add_marker(pytest.mark.once)
        place = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        for places, mark in (
            (NOT_QUICK, pytest.mark.slow),
            (WIDE, pytest.mark.wide),
            (ONCE, pytest.mark.once),
        ):
            if place.startswith(places):
                item.add_marker(mark)
    if "long" not in config.option.markexpr:
        _leave_out("long", config, items)
    if find_spec("pyspark") is None:
        _leave_out("spark", config, items)


def _leave_out(mark: str, config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(mark)])
    items[:] = [item for item in items if not item.get_closest_marker(mark)]


def pytest_sessionstart() -> None:
    from tests.support.emptying import empty_quickly  # models: Django is set up by now

    empty_quickly()


def pytest_unconfigure() -> None:
    _running.close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the server and its version, whatever it is."""
    if _runs_no_test(config):
        return []
    seed = config.getoption("--sample")
    return [
        f"database: {version_of_run()}",
        f"exhaustive tests: {f'a sample, seed {seed}' if seed else 'all'}",
    ]


def _runs_no_test(config: pytest.Config) -> bool:
    option = config.option
    return bool(option.collectonly or option.help or option.version or option.markers or option.showfixtures)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> str | None:
    """What chooses the sample of exhaustive tests (``tests/support/sampling.py``); None: nothing is left out."""
    seed: str | None = request.config.getoption("--sample")
    return seed


@pytest.fixture
def own_server(django_db_blocker: DjangoDbBlocker) -> Iterator[OwnServer]:
    """A migrated server of the run's kind that only this test uses, to be stopped, killed and restarted."""
    with django_db_blocker.unblock(), own_server_of_kind(kind_of_run()) as server:
        yield server
