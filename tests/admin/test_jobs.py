"""The page of jobs: what it lists, and what its buttons do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client, override_settings
from django.utils import timezone

from django_mqueue import Subscription, purge, redrive, subscribe
from django_mqueue.admin.base.row_ids import encode
from django_mqueue.admin.jobs import job_list
from django_mqueue.models import DeliveryState
from django_mqueue.tasks.context import Notes
from tests.features.tasks import jobs
from tests.features.tasks.conftest import tasks
from tests.support.waiting import gather

from .looking import html_of
from .operating import staff, url_of

pytestmark = pytest.mark.django_db(transaction=True)

ALL = ("view_message", "stop_message", "hurry_message", "view_deadletter", "redrive_deadletter")


@pytest.fixture(autouse=True)
def settings_with_jobs() -> Iterator[None]:
    jobs.seen.clear()
    with override_settings(TASKS=tasks()):
        yield


def rows(client: Client, **query: str) -> list[str]:
    """Return the text of each row of the list, newest job first."""
    html = html_of(client, url_of("jobs"), query)
    body = html.partition("<tbody>")[2].partition("</tbody>")[0]
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in body.split("</tr>")[:-1]]


def press(client: Client, id: str) -> str:
    """Confirm the operation on a job. Return the page that follows."""
    shown = client.get(url_of("stop_job"), {"id": id})
    assert shown.status_code == 200
    assert f'href="{url_of("jobs")}" aria-current="page"' in shown.content.decode()
    assert shown.context["crumbs"][-2] == ("Jobs", url_of("jobs"))
    return client.post(url_of("stop_job"), {"id": id, "confirmed": "yes"}, follow=True).content.decode()


def work() -> None:
    call_command("runconsumer", tasks=[], drain=True, verbosity=0)


def test_each_state_with_what_may_be_done(admin_client: Client) -> None:
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[600], retry_on=OSError)):
        jobs.add.enqueue(1, 2), jobs.fail.enqueue("bad news"), jobs.number_of_attempt.enqueue()
        work()
    waiting = jobs.add.enqueue(3, 4)
    first, *others = rows(admin_client, queue="default")
    assert re.search(r"jobs\.add 3, 4 waits - - Cancel " + re.escape(waiting.id), first), first
    assert re.search(
        r"number_of_attempt .* waits for a retry 1 OSError: attempt 1 Cancel .* Run now", others[0]
    )
    assert re.search(r"jobs\.fail \"bad news\" failed 1 ValueError: bad news Retry", others[1])
    assert re.search(r"jobs\.add .*1, 2 successful 1 3$", others[2])


def test_a_job_that_is_done_was_not_always_successful(admin_client: Client) -> None:
    with override_settings(TASKS=tasks(max_attempts=2, backoff=[7200], retry_on=OSError)):
        jobs.number_of_attempt.enqueue(), jobs.fail.enqueue("purged")
        redriven = jobs.fail.enqueue("redriven")
        work()
    assert (redrive("tasks.default", ids=[redriven.id]), purge("tasks.default")) == (1, 1)
    again, third, second, first = rows(admin_client)
    assert re.search(r'"redriven" waits', again), again
    assert re.search(r'"redriven" redriven 1 ValueError: redriven$', third), third
    assert re.search(r'"purged" failed 1 ValueError: purged$', second), second
    assert re.search(r"number_of_attempt .* parked 1 OSError: attempt 1$", first), first


def test_a_mask_may_remove_the_errors_of_a_cancelled_job() -> None:
    result = jobs.add.enqueue(1, 2)
    subscribe("tasks.default", "tasks", "earliest")
    press(staff(*ALL), result.id)
    masked: dict[str, Any] = {"TOPICS": {"tasks.default": {"MASK": "tests.admin.test_jobs.mask_all"}}}
    with override_settings(MQUEUE=masked):
        (row,) = rows(staff("view_message", name="other"))
    assert row.endswith('"hidden" cancelled - -'), row


def test_the_form_selects_by_queue_state_task_and_time(admin_client: Client) -> None:
    jobs.add.enqueue(1, 2), jobs.fail.enqueue("no")
    work()
    jobs.add.using(queue_name="mail").enqueue(5, 6)
    jobs.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(7, 8)
    subscribe("tasks.mail", "tasks", "earliest")
    assert ["5, 6" in row for row in rows(admin_client, queue="mail")] == [True]
    assert ["no" in row for row in rows(admin_client, state="dead")] == [True]
    assert len(rows(admin_client, task=f"{jobs.__name__}.add")) == 1
    assert rows(admin_client, after="2100-01-01") == []
    (later,) = rows(admin_client, state="scheduled")
    assert re.search(r"7, 8 scheduled - - Cancel .* Run now", later), later


def test_a_page_without_a_match_leads_to_older_jobs(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_list, "SCAN_LIMIT", 1)
    subscribe("tasks.default", "tasks", "earliest")
    jobs.add.enqueue(1, 2)
    for number in range(3):
        jobs.fail.enqueue(str(number))
    html, pages = html_of(admin_client, url_of("jobs"), {"task": f"{jobs.__name__}.add"}), 1
    assert "No match so far." in html
    while "1, 2" not in html:
        found = re.search(r'href="([^"]+)">Search further', html)
        assert found
        assert pages < 10
        html, pages = admin_client.get(unescape(found[1])).content.decode(), pages + 1
    assert pages > 1


def test_the_limit_that_a_job_may_wait_for(admin_client: Client) -> None:
    subscribe("tasks.default", "tasks", "earliest")
    jobs.call_limited.enqueue("ada")
    assert re.search(r"call_limited \"ada\" waits - limit of ada Cancel", rows(admin_client)[0])


def test_before_a_worker_has_run_the_page_says_so(admin_client: Client) -> None:
    jobs.add.enqueue(1, 2)
    assert "is not registered" in html_of(admin_client, url_of("jobs"), {"queue": "default"})


def test_the_progress_of_a_running_job_and_the_wish_to_stop_it(admin_client: Client) -> None:
    result = jobs.reports.enqueue()
    with Subscription("tasks.default", "tasks") as subscription:
        (delivery,) = gather(subscription.poll, 1, "the job")
        notes = Notes(delivery)
        notes.write({"done": 3, "total": 10, "text": "orders"})
        assert re.search(r" runs 1 3 of 10: orders Stop", rows(admin_client)[0])
        assert f"Job {result.id} is cancelled or asked to stop." in press(admin_client, result.id)
        assert notes.asks_to_stop()
    assert [entry.change_message for entry in LogEntry.objects.all()] == [
        f"Job {result.id} is cancelled or asked to stop."
    ]


def test_a_job_that_waits_is_cancelled(admin_client: Client) -> None:
    result = jobs.add.enqueue(1, 2)
    assert f"Job {result.id} is cancelled." in press(admin_client, result.id)
    assert re.search(r" cancelled - removed", rows(admin_client)[0])
    assert "The job has ended, or another transaction keeps it locked. Nothing was changed." in press(
        admin_client, result.id
    )
    assert "There is no such job." in press(admin_client, "default.0.1.other")
    work()
    assert jobs.seen == []


def test_each_button_needs_its_permission() -> None:
    result = jobs.add.enqueue(1, 2)
    subscribe("tasks.default", "tasks", "earliest")
    viewer, operator = staff("view_message"), staff(*ALL, name="other")
    assert "Cancel" not in rows(viewer)[0]
    assert "Cancel" in rows(operator)[0]
    assert viewer.get(url_of("stop_job"), {"id": result.id}).status_code == 403
    assert staff("view_consumergroup", name="third").get(url_of("jobs")).status_code == 403


def test_arguments_and_return_values_are_masked() -> None:
    masked: dict[str, Any] = {"TOPICS": {"tasks.default": {"MASK": "tests.admin.test_jobs.mask"}}}
    jobs.add.enqueue(1, 2)
    work()
    with override_settings(MQUEUE=masked):
        (row,) = rows(staff("view_message"))
        assert re.search(r"jobs\.add \"hidden\" successful 1 masked", row), row
        (row,) = rows(staff("view_message", "unmask_message", name="other"))
        assert re.search(r"1, 2 successful 1 3$", row), row


def test_progress_is_masked_on_both_pages() -> None:
    """Its text may hold what the mask hides."""
    masked: dict[str, Any] = {"TOPICS": {"tasks.default": {"MASK": "tests.admin.test_jobs.mask"}}}
    jobs.reports.enqueue()
    with Subscription("tasks.default", "tasks") as subscription:
        (delivery,) = gather(subscription.poll, 1, "the job")
        Notes(delivery).write({"done": 3, "total": 10, "text": "card 5105"})
        state = DeliveryState.objects.get()
        page = url_of("deliverystate_change", encode(state.pk))
        with override_settings(MQUEUE=masked):
            viewer = staff("view_message", "view_deliverystate")
            assert re.search(r" runs 1 masked$", rows(viewer)[0])
            assert "card 5105" not in html_of(viewer, page)
            seeing = staff("view_message", "view_deliverystate", "unmask_message", name="other")
            assert "3 of 10: card 5105" in rows(seeing)[0]
            assert "3 of 10: card 5105" in html_of(seeing, page)


def mask(message: Any) -> Any:
    return replace(message, payload="hidden")


def mask_all(message: Any) -> Any:
    return replace(message, payload="hidden", errors=())
