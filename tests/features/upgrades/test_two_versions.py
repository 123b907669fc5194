"""Workers and publishers of an earlier commit continue during ``migrate``, and share the work with this code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from django_mqueue.models import DeliveryState
from tests.support.processes import ROOT, Worker, wait_until
from tests.support.shop.models import Door, Step
from tests.support.steps import assert_in_order, assert_never_two_at_once, by_key

from .earlier import BEFORE_INDEXES, BEFORE_RESULTS, BEFORE_STOPS, Processes, Version, checked_out
from .publisher import KEYS

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.exhaustive,
    pytest.mark.one_server,
    pytest.mark.timeout(600),
]

USING = "other"
GROUPS = {"orders": "billing", "ledger": "books"}
"""The group of the second topic is strict."""
CHOSEN = [f"{topic}:{group}" for topic, group in GROUPS.items()]


@pytest.fixture(params=[BEFORE_RESULTS, BEFORE_STOPS, BEFORE_INDEXES], ids=lambda version: version.migration)
def version(request: pytest.FixtureRequest) -> Iterator[Version]:
    """Let the other database have the tables of an earlier commit until the test migrates it."""
    version: Version = request.param
    call_command("migrate", "django_mqueue", version.migration, database=USING, verbosity=0)
    yield version
    call_command("migrate", "django_mqueue", database=USING, verbosity=0)


def started_by(*processes: Worker) -> int:
    return Step.objects.using(USING).filter(what="start", pid__in=[one.pid for one in processes]).count()


def wait_for_more(*processes: Worker) -> None:
    """Return when each of the processes has started further handlers."""
    before = {one.pid: started_by(one) for one in processes}
    for one in processes:
        wait_until(lambda: started_by(one) > before[one.pid] + 5, f"process {one.pid} gets messages")  # noqa: B023


def test_two_versions_share_the_work_on_the_new_tables(version: Version, tmp_path: Path) -> None:
    """The database is migrated first. Then each worker is replaced, one after another. Nothing is lost or repeated."""
    directory = checked_out(version, tmp_path)
    with Processes(directory, USING) as old, Processes(ROOT, USING) as new:
        publishers = {"old": old.publish("old", *GROUPS)}
        former = [old.start(*CHOSEN, "--threads", "2", "--name", f"w{n}") for n in range(2)]
        wait_for_more(*former)

        call_command("migrate", database=USING, verbosity=0)
        applied = MigrationRecorder(connections[USING]).applied_migrations()
        newest = max(name for app, name in applied if app == "django_mqueue")
        assert newest > version.migration, "nothing was migrated"
        wait_for_more(*former)

        publishers["new"] = new.publish("new", *GROUPS)
        added = new.start(*CHOSEN, "--threads", "2", "--name", "w2")
        wait_for_more(*former, added)
        assert former[0].stop() == 0
        latter = [new.start(*CHOSEN, "--threads", "2", "--name", "w0"), added]
        wait_for_more(former[1], *latter)
        assert former[1].stop() == 0
        wait_for_more(*latter)

        numbers = {name: stopped(publisher, name) for name, publisher in publishers.items()}
        assert f"code: {directory}\n" in publishers["old"].output()
        assert f"code: {ROOT}\n" in publishers["new"].output()
        settled = DeliveryState.objects.using(USING).filter(acked=True)
        total = sum(numbers.values()) * KEYS * len(GROUPS)
        wait_until(lambda: settled.count() == total, f"{total} are settled")
        assert [worker.stop() for worker in latter] == [0, 0]
    for topic, group in GROUPS.items():
        steps = by_key(topic, group, USING)
        assert set(steps) == {f"{name}-{key}" for name in numbers for key in range(KEYS)}
        for key, of_key in steps.items():
            assert_handled_once(of_key, numbers[key.partition("-")[0]], strict=topic == "ledger")


def stopped(publisher: Worker, name: str) -> int:
    """Stop a publisher. Return the number of messages of each key."""
    Door.objects.using(USING).create(name=name)
    assert publisher.wait() == 0
    found = re.search(r"^published (\d+), failed (\d+)$", publisher.output(), re.MULTILINE)
    assert found, publisher.output()
    assert int(found[2]) == 0, publisher.output()
    return int(found[1])


def assert_handled_once(steps: list[Step], numbers: int, *, strict: bool) -> None:
    assert Counter((step.what, step.attempt) for step in steps) == {
        ("start", 1): numbers,
        ("end", 1): numbers,
    }
    assert len({(step.what, step.number) for step in steps}) == 2 * numbers
    if strict:
        assert_in_order(steps, range(numbers))
        assert_never_two_at_once(steps)
