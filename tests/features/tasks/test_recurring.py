"""Recurring jobs: each due time has one firing, whatever workers start, stop and die."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import ProgrammingError
from django.test import override_settings

from django_mqueue import redrive, reset
from django_mqueue.models import DeliveryState, Message
from django_mqueue.tasks import Limit, MQueueBackend, RecurringJob, recurring_jobs
from django_mqueue.tasks.compat import task_backends, task_enqueued
from django_mqueue.testing import drain
from tests.support.processes import FAST, Workers, database_ms, wait_until
from tests.support.subscribers import let_worker_die
from tests.support.transactions import HeldTransaction

from . import jobs
from .conftest import tasks

pytestmark = pytest.mark.django_db(transaction=True)

PATH = f"{jobs.__name__}."
PERIOD = timedelta(days=1000)
"""No due time comes while a test runs."""


def recurring(task: str = "add", name: str = "sums", **options: Any) -> override_settings:
    """Return settings with one recurring job. It is due each ``PERIOD`` unless ``options`` say otherwise."""
    given = {"task": PATH + task, "args": [1, 2] if task == "add" else [], **options}
    if "cron" not in given:
        given["every"] = PERIOD
    return override_settings(TASKS=tasks(recurring={name: given}))


def work() -> None:
    """Start a worker, and stop it when nothing is due."""
    call_command("runconsumer", tasks=[], threads=1, drain=True, verbosity=0)


def the_job() -> RecurringJob:
    (found,) = recurring_jobs()
    return found


def scheduled() -> list[str]:
    """Return the due times of the scheduled firings, as their ids contain them."""
    rows = Message.objects.filter(topic__endswith="_scheduled").order_by("message_id")
    return [row.message_id.rpartition("@")[2] for row in rows]


def logged() -> list[str]:
    """Return the due times of the firings in the log, in its order."""
    rows = Message.objects.filter(topic="tasks.default").order_by("offset")
    return [row.message_id.rpartition("@")[2] for row in rows]


def make_due(since: datetime | None = None) -> str:
    """Let the scheduled firing be due now, or as if no worker had run since ``since``. Return its id."""
    row = Message.objects.get(topic__endswith="_scheduled")
    if since is not None:
        row.message_id = str(the_job().firing(since))
        row.metadata["headers"]["task-previous"] = str(the_job().firing(since - PERIOD))
    Message.objects.filter(pk=row.pk).update(message_id=row.message_id, metadata=row.metadata, available_at=0)
    return row.message_id


def due(number: int) -> datetime:
    """Return a due time: 0 for the last one, 1 for the next one."""
    now = datetime.fromtimestamp(database_ms() / 1000, UTC)
    return the_job().options.timetable.last_before(now) + number * PERIOD


def text(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%SZ}"


def test_workers_enqueue_the_next_firing_once_when_they_start() -> None:
    with recurring():
        for _ in range(3):
            work()
        assert (scheduled(), logged(), jobs.seen) == ([text(due(1))], [], [])


def test_a_firing_runs_and_the_next_one_is_enqueued() -> None:
    enqueued: list[str] = []

    def note(task_result: Any, **_: Any) -> None:
        enqueued.append(task_result.id)

    task_enqueued.connect(note)
    with recurring():
        work()
        id = make_due()
        work()
        result = task_backends["default"].get_result(id)
        assert (result.return_value, jobs.seen) == (3, [(1, 2)])
        assert scheduled() == [text(due(2))]
        assert enqueued == [id, str(the_job().firing(due(2)))]
    task_enqueued.disconnect(note)


def test_queue_and_priority_are_those_of_the_settings() -> None:
    with recurring(queue="mail", priority=7):
        work()
        id = make_due()
        assert id.startswith("mail.7.1.sums@")
        work()
        assert task_backends["default"].get_result(id).task.priority == 7


def unfinished_firing(**options: Any) -> override_settings:
    """Run a firing whose first attempt fails, so that it waits for a retry. Let the next one be due."""
    found = recurring(task="succeeds_later", **options)
    with found:
        work()
        make_due()
        work()
        make_due()
    assert jobs.seen == [1]
    return found


def wait_is_over() -> None:
    DeliveryState.objects.filter(acked=False).update(invisible_until=0)


def test_a_firing_waits_for_the_previous_one() -> None:
    with unfinished_firing():
        work()
        assert (jobs.seen, len(scheduled())) == ([1], 1)
        wait_is_over()
        work()
        wait_is_over()
        work()
    assert jobs.seen == [1, 2, 1]


@pytest.mark.parametrize("options", [{}, {"catch_up": "all"}, {"overlap": "skip"}], ids=str)
def test_a_firing_waits_for_the_one_that_was_due_while_no_worker_ran(options: dict[str, Any]) -> None:
    """A worker that starts enqueues the next firing before the old one begins. No firing was due in between."""
    with recurring(task="succeeds_later", **options):
        work()
        make_due(due(-3))
        work()
        Message.objects.filter(topic__endswith="_scheduled").update(available_at=0)
        work()
        assert jobs.seen == [1]
        wait_is_over()
        work()
        assert jobs.seen[:2] == [1, 2]


@pytest.mark.parametrize(("catch_up", "runs"), [("one", 1), ("all", 4)])
def test_one_firing_waits_at_a_time(catch_up: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four firings are due while the first one has not ended. Each would wait, and look again after ``WAIT``."""
    monkeypatch.setattr("django_mqueue.tasks.recurring.WAIT", 3000)
    with unfinished_firing(catch_up=catch_up):
        work()
        for _ in range(3):
            make_due()
            work()
        for _ in range(6):
            wait_is_over()
            work()
    assert jobs.seen == [1, 2, *[1] * runs]


def test_the_next_firing_waits_for_the_latest_one_also_after_a_retry() -> None:
    """No worker ran when firing 0 was due. The retry of firing -2 enqueues firing 1, while firing -1 waits."""
    with recurring(task="succeeds_later"):
        work()
        make_due(due(-2))
        work()
        waiting = make_due(due(-1))
        wait_is_over()
        work()
        assert jobs.seen[:2] == [1, 2]
        found = Message.objects.get(message_id=str(the_job().firing(due(1))))
        assert found.metadata["headers"]["task-previous"] == waiting


def test_a_firing_does_not_wait_for_one_that_a_reset_has_passed() -> None:
    with unfinished_firing():
        reset("tasks.default", "tasks", "latest")
        Message.objects.filter(topic__endswith="_scheduled").update(available_at=0)
        work()
    assert jobs.seen == [1, 1]


def test_a_firing_waits_for_the_latest_of_those_that_wait() -> None:
    """Firing -1 waits for -2, past the due time of 0, which is not promoted yet. It enqueues 1."""
    with recurring(task="succeeds_later"):
        work()
        make_due(due(-2))
        work()
        later = Message.objects.get(topic__endswith="_scheduled")
        make_due(due(-1))
        later.pk, later.message_id = None, str(the_job().firing(due(0)))
        later.save()
        drain()  # A worker would enqueue firing 1 when it starts.
        found = Message.objects.get(message_id=str(the_job().firing(due(1))))
        assert found.metadata["headers"]["task-previous"] == later.message_id


def test_a_firing_waits_for_what_a_skipped_one_before_it_waited_for() -> None:
    """The skipped one had enqueued it already, or a worker did after an operator had removed it."""
    with unfinished_firing():
        work()
        skipped = make_due()
        work()
        row = Message.objects.get(topic__endswith="_scheduled")
        row.metadata["headers"]["task-previous"] = skipped
        row.save()
        make_due()
        work()
        assert jobs.seen == [1]
        wait_is_over()
        work()
        assert jobs.seen[:2] == [1, 2]


def test_the_next_firing_waits_for_one_that_an_operator_has_sent_early() -> None:
    with recurring(task="succeeds_later"):
        work()
        make_due(due(0))
        work()
        early = make_due()
        assert early == str(the_job().firing(due(1)))
        work()
        found = Message.objects.get(message_id=str(the_job().firing(due(2))))
        assert found.metadata["headers"]["task-previous"] == early


def test_a_firing_is_skipped_while_the_previous_one_is_unfinished() -> None:
    with unfinished_firing(overlap="skip"):
        for _ in range(4):
            work()
            make_due()
        work()
        assert jobs.seen == [1], "the firing after a skipped one waits for the same job"
        wait_is_over()
        work()
        make_due()
        work()
    assert jobs.seen == [1, 2, 1]


def test_firings_may_overlap() -> None:
    with unfinished_firing(overlap="allow"):
        work()
    assert jobs.seen == [1, 1]


@pytest.mark.parametrize(
    ("catch_up", "ran", "calls"),
    [("one", [-3], 1), ("none", [-3], 0), ("all", [-3, -2, -1, 0], 4)],
)
def test_what_was_due_while_no_worker_ran(catch_up: str, ran: list[int], calls: int) -> None:
    with recurring(catch_up=catch_up):
        work()
        make_due(due(-3))
        work()
        while DeliveryState.objects.filter(acked=False).exists():  # Its previous firing was running.
            wait_is_over()
            work()
        assert len(jobs.seen) == calls
        assert logged() == [text(due(number)) for number in ran]
        assert scheduled() == [text(due(1))]


def test_a_retry_does_not_repeat_firings_that_were_deleted_since() -> None:
    """Firing -2 runs while firing -3 waits for its retry. Then it is deleted, and firing -3 is retried."""
    with recurring(task="succeeds_later", overlap="allow", catch_up="all"):
        work()
        make_due(due(-3))
        work()
        assert jobs.seen == [1, 1, 1, 1]
        Message.objects.filter(topic="tasks.default").exclude(
            message_id=str(the_job().firing(due(-3)))
        ).delete()
        wait_is_over()
        work()
    assert jobs.seen == [1, 1, 1, 1, 2]


def test_a_firing_that_is_only_a_little_late_runs_without_catching_up() -> None:
    with recurring(catch_up="none"):
        work()
        make_due(due(0))
        work()
    assert len(jobs.seen) == 1


def next_firing(job: RecurringJob) -> tuple[bool, datetime | None]:
    return job.is_paused, job.next_due


def test_pause_and_resume() -> None:
    with recurring():
        work()
        job = the_job()
        assert next_firing(job) == (False, due(1))
        job.pause()
        job.pause()
        assert next_firing(job) == (True, None)
        Message.objects.filter(message_id=str(job.firing(due(1)))).update(available_at=0)
        work()
        assert (jobs.seen, scheduled()) == ([], ["paused"])
        job.resume()
        job.resume()
        assert next_firing(job) == (False, due(1))


def test_a_firing_that_has_begun_is_retried_although_the_job_is_paused() -> None:
    with recurring(task="succeeds_later"):
        work()
        make_due()
        work()
        the_job().pause()
        wait_is_over()
        work()
    assert jobs.seen == [1, 2]


def test_a_firing_that_was_cancelled_before_it_was_due_is_enqueued_again() -> None:
    with recurring():
        work()
        job = the_job()
        assert job.backend.cancel(str(job.firing(due(1))))
        assert scheduled() == []
        work()
        assert scheduled() == [text(due(1))]


def test_a_paused_job_can_run_now() -> None:
    with recurring():
        job = the_job()
        job.pause()
        result = job.run_now()
        work()
        result.refresh()
        assert (result.return_value, scheduled()) == (3, ["paused"])


def test_the_last_result() -> None:
    with recurring():
        assert the_job().last_result is None
        work()
        make_due(due(0))
        work()
        job = the_job()
        assert job.last_result is not None
        assert job.last_result.return_value == 3
        assert (str(job), job.schedule) == ("sums", "every 1000 days, 0:00:00")


def test_the_last_result_is_not_that_of_a_firing_that_was_skipped_for_an_open_one() -> None:
    with recurring(task="succeeds_later", overlap="skip"):
        work()
        failed = make_due(due(-1))
        work()
        make_due(due(0))
        work()
        last = the_job().last_result
        assert last is not None
        assert (last.id, last.is_finished) == (failed, False)


def test_a_firing_of_a_job_that_was_removed_still_runs() -> None:
    with recurring():
        work()
        make_due()
    work()
    assert (jobs.seen, scheduled()) == ([(1, 2)], [])


def test_a_new_timetable_continues_after_the_firing_of_the_old_one() -> None:
    with recurring():
        work()
        make_due(due(0))
    with recurring(cron="30 0 1 1 *"):
        work()
        (found,) = scheduled()
    assert found.endswith("0101T003000Z")
    assert len(jobs.seen) == 1


def test_a_task_that_cannot_be_imported_does_not_stop_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    entries = {
        "gone": {"task": PATH + "gone", "every": 3600},
        "sums": {"task": PATH + "add", "args": [1, 2], "every": 3600},
    }
    with override_settings(TASKS=tasks(recurring=entries)):
        work()
        assert len(scheduled()) == 1
        assert "recurring job not enqueued: gone: task" in caplog.text
        found = task_backends["default"].check()
    assert [error.msg.partition(":")[0] for error in found] == [
        "TASKS['default']['OPTIONS']['recurring']['gone']"
    ]


@pytest.mark.parametrize("error", [KeyError("gone"), ProgrammingError(1146, "Table 'gone' doesn't exist")])
def test_a_limit_whose_key_fails_does_not_stop_the_worker(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit(1, key=Mock(side_effect=error))
    monkeypatch.setattr(jobs.add.func, "mqueue_job_options", {"limit": limit}, raising=False)
    with recurring():
        work()
    assert f"recurring job not enqueued: sums: {error}" in caplog.text


def test_two_backends_cannot_have_the_same_job() -> None:
    """Its firings would have the same ids, so each due time would have the firing of one backend."""
    with recurring():
        both = settings.TASKS | {"atomic": settings.TASKS["default"]}
    with override_settings(TASKS=both):
        assert task_backends["atomic"].check() == []
        (error,) = task_backends["default"].check()
        assert "['sums']: TASKS['atomic'] has a job of this name" in error.msg


def test_arguments_that_are_too_long_do_not_stop_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    with recurring(args=["x" * 100, 1]), override_settings(MQUEUE={**FAST, "MAX_PAYLOAD_BYTES": 50}):
        work()
    assert "recurring job not enqueued: sums: payload" in caplog.text


def test_a_receiver_that_fails_does_not_stop_the_worker() -> None:
    def fail(**_: Any) -> None:
        raise LookupError

    task_enqueued.connect(fail)
    with recurring():
        work()
    task_enqueued.disconnect(fail)
    assert len(scheduled()) == 1


@pytest.mark.parametrize(
    ("name", "entry", "problem"),
    [
        ("a.b", {}, "the name must be 1 to 60 letters"),
        ("a", None, "it must be a dict"),
        ("a", {"every": 5}, "task must be the import path"),
        ("a", {"task": "a.b"}, "give either cron or every"),
        ("a", {"task": "a.b", "cron": "* * * * *", "every": 5}, "give either cron or every"),
        ("a", {"task": "a.b", "cron": "61 * * * *"}, "cron must be a cron expression"),
        ("a", {"task": "a.b", "cron": "0 0 30 2 *"}, "cron must be a cron expression"),
        ("a", {"task": "a.b", "cron": "* * * * *", "timezone": "Berlin"}, "timezone must be a name such as"),
        ("a", {"task": "a.b", "every": 0.5}, "every must be at least 1 seconds"),
        ("a", {"task": "a.b", "every": 1.5}, "every must be whole seconds"),
        (
            "a",
            {"task": "a.b", "every": 5, "timezone": "UTC"},
            "every must be whole seconds, without timezone",
        ),
        ("a", {"task": "a.b", "every": 5, "priority": "5"}, "priority must be an int, not str"),
        ("a", {"task": "a.b", "every": 5, "queue": 5}, "queue must be a str, not int"),
        ("a", {"task": "a.b", "every": 5, "overlap": "no"}, "overlap must be one of queue, skip, allow"),
        ("a", {"task": "a.b", "every": 5, "catch_up": "no"}, "catch_up must be one of one, none, all"),
        ("a", {"task": "a.b", "every": 5, "at": 5}, "unknown key 'at'; the keys are: args, catch_up, cron,"),
        ("a", {"task": "a.b", "every": 5, "args": [{1}]}, "Unsupported type"),
    ],
)
def test_wrong_settings(name: str, entry: Any, problem: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"OPTIONS.*recurring.*{problem}"):
        MQueueBackend("default", tasks(recurring={name: entry})["default"])


def test_several_workers_fire_once_for_each_due_time() -> None:
    entry = {"task": PATH + "add", "args": [1, 2], "every": 1, "catch_up": "all"}
    settings = json.dumps(tasks(recurring={"sums": entry}))
    with Workers() as workers:
        for _ in range(3):
            workers.run(("django", "runconsumer"), "--tasks", TEST_TASKS=settings)
        wait_until(has_four_without_a_gap, "four firings, and none is left out")
    found = logged()
    assert len(set(found)) == len(found)


def has_four_without_a_gap() -> bool:
    """Return whether the log has at least four firings, and all between the first and the last.

    A slow worker may publish a firing late.
    """
    times = [datetime.strptime(each, "%Y%m%dT%H%M%SZ") for each in sorted(set(logged()))]
    return len(times) >= 4 and times == [times[0] + timedelta(seconds=n) for n in range(len(times))]


def test_a_firing_whose_worker_is_killed_runs_again_and_has_one_successor(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    entry = {"task": PATH + "hangs_once", "args": [str(runs)], "every": PERIOD.total_seconds()}
    settings = json.dumps(tasks(recurring={"sums": entry}))
    with override_settings(TASKS=json.loads(settings)), Workers() as workers:
        work()
        id = make_due()
        first = workers.run(("django", "runconsumer"), "--tasks", "--name", "first", TEST_TASKS=settings)
        wait_until(lambda: runs.exists() and runs.read_text(), "the job runs")
        first.kill()
        let_worker_die(first)
        work()
        assert task_backends["default"].get_result(id).return_value == "done"
        assert runs.read_text() == "started\nstarted\n"
        assert scheduled() == [text(due(2))]


@pytest.mark.parametrize("paused", [False, True])
def test_a_firing_that_was_redriven_runs_although_it_is_late(paused: bool) -> None:
    with recurring(task="fails_for_good", catch_up="none"):
        work()
        make_due(due(0))
        work()
        letter = Message.objects.filter(topic="tasks.default_dlq")
        letter.update(original_id=str(the_job().firing(due(-2))))
        if paused:
            the_job().pause()
        assert redrive("tasks.default") == 1
        work()
        assert (jobs.seen, letter.count()) == (["failed", "failed"], 1)


def test_a_firing_that_waits_does_not_end_before_the_previous_one_although_it_is_late() -> None:
    """The next firing waits for this one. So the two would run at once."""
    with unfinished_firing(catch_up="none"):
        work()
        waiting = Message.objects.filter(topic="tasks.default").latest("offset")
        late = str(the_job().firing(due(-1)))
        Message.objects.filter(offset=waiting.offset).update(message_id=late)
        DeliveryState.objects.filter(message_offset=waiting.offset).update(invisible_until=0)
        work()
        assert jobs.seen == [1]
        assert task_backends["default"].get_result(late).status == "READY"
        wait_is_over()
        work()
        wait_is_over()
        work()
        assert task_backends["default"].get_result(late).status == "SUCCESSFUL"
    assert jobs.seen == [1, 2], "then it is skipped, because it is late"


def test_a_firing_that_an_open_transaction_stores_stops_no_worker() -> None:
    """A job with ``atomic=True`` stores the next firing in its own transaction, and may run for hours.

    The job has a name of its own: an INSERT of a key that was just deleted also locks the gap before it.
    """
    with recurring(name="held"), HeldTransaction(lambda: the_job().enqueue_next()) as held:
        jobs.add.enqueue(3, 4)
        work()
        assert jobs.seen == [(3, 4)]
        held.commit()
        assert len(scheduled()) == 1
