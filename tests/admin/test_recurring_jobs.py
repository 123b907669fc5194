"""The page of recurring jobs: what it shows, and what its buttons do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings

from django_mqueue.models import Message
from django_mqueue.tasks import RecurringJob, recurring_jobs
from django_mqueue.testing import assert_enqueued
from tests.features.tasks import jobs
from tests.features.tasks.conftest import tasks

from .looking import html_of
from .operating import staff, url_of
from .test_jobs import work

pytestmark = pytest.mark.django_db(transaction=True)

PATH = f"{jobs.__name__}."
ENTRIES: dict[str, dict[str, Any]] = {
    "sums": {
        "task": PATH + "add",
        "args": [1, 2],
        "cron": "0 6 1 1 *",
        "timezone": "Europe/Berlin",
        "overlap": "allow",
    },
    "gone": {"task": PATH + "gone", "every": 3600},
}


@pytest.fixture(autouse=True)
def settings_with_jobs() -> Iterator[None]:
    jobs.seen.clear()
    with override_settings(TASKS=tasks(recurring=ENTRIES)):
        yield


def sums() -> RecurringJob:
    (found,) = (job for job in recurring_jobs() if job.name == "sums")
    return found


def text_of(client: Client) -> str:
    html = html_of(client, url_of("recurring_jobs"))
    return " ".join(
        unescape(re.sub(r"<[^>]+>", " ", html.partition("<tbody>")[2].partition("</tbody>")[0])).split()
    )


def press(client: Client, page: str) -> str:
    """Confirm an operation on the job. Return the page that follows."""
    which = {"backend": "default", "name": "sums"}
    shown = client.get(url_of(page), which)
    assert shown.status_code == 200
    navigation = shown.content.decode().partition("mqueue-navigation")[2]
    assert re.findall(r'href="([^"]+)" aria-current="page"', navigation) == [url_of("recurring_jobs")]
    assert shown.context["crumbs"][-2] == ("Recurring jobs", url_of("recurring_jobs"))
    return client.post(url_of(page), {**which, "confirmed": "yes"}, follow=True).content.decode()


def test_it_shows_the_last_and_the_next_firing(admin_client: Client) -> None:
    work()
    shown = text_of(admin_client)
    assert re.search(
        r"sums .*jobs\.add 0 6 1 1 \* \(Europe/Berlin\) - .* Pause sums · Run now sums", shown
    ), shown
    assert re.search(r"gone .*jobs\.gone every 1:00:00 task .* cannot be imported", shown), shown
    row = Message.objects.get(topic="tasks.default_scheduled", message_id__contains="sums")
    last = str(sums().firing(sums().options.timetable.last_before(sums()._now())))
    Message.objects.filter(pk=row.pk).update(message_id=last, available_at=1)
    work()
    assert re.search(r"\(Europe/Berlin\) \d{4}-[-\d: ]+ : successful", text_of(admin_client))


def test_pause_run_and_resume(admin_client: Client) -> None:
    assert "Recurring job sums is paused." in press(admin_client, "pause_job")
    assert "paused Resume sums · Run now sums" in text_of(admin_client)
    assert "A job of sums is enqueued." in press(admin_client, "run_job")
    work()
    assert_enqueued(jobs.add, 1, 2)
    assert jobs.seen == [(1, 2)]
    assert "Recurring job sums is resumed." in press(admin_client, "resume_job")
    assert not sums().is_paused
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Recurring job sums is paused.", "A job of sums is enqueued.", "Recurring job sums is resumed.",
    ]  # fmt: skip


def test_a_unique_job_that_waits_is_named(admin_client: Client) -> None:
    entry = {"task": PATH + "call_customer", "args": ["ada", "hello"], "every": 3600}
    with override_settings(TASKS=tasks(recurring={"sums": entry})):
        press(admin_client, "run_job")
        assert "has the same key: it has not ended" in press(admin_client, "run_job")
    assert Message.objects.filter(topic="tasks.default").count() == 1


def test_the_mark_of_a_pause_is_no_job(admin_client: Client) -> None:
    """To run or cancel it like a scheduled job would end the pause."""

    def shown() -> int:
        return html_of(admin_client, f"{url_of('jobs')}?queue=default&state=scheduled").count("Run now")

    work()
    assert shown() == 1, "the next firing"
    sums().pause()
    assert Message.objects.filter(topic="tasks.default_scheduled").count() == 2
    assert shown() == 1


@pytest.mark.parametrize(
    ("page", "right"),
    [
        ("pause_job", "pause_consumergroup"),
        ("resume_job", "resume_consumergroup"),
        ("run_job", "publish_message"),
    ],
)
def test_each_button_needs_its_permission(page: str, right: str) -> None:
    which = {"backend": "default", "name": "sums"}
    viewer, operator = staff("view_consumergroup"), staff("view_consumergroup", right, name="other")
    assert viewer.get(url_of(page), which).status_code == 403
    assert operator.get(url_of(page), which).status_code == 200
    assert "Run now sums" not in text_of(viewer)
    assert staff("view_message", name="third").get(url_of("recurring_jobs")).status_code == 403


def test_an_unknown_job_is_an_error(admin_client: Client) -> None:
    response = admin_client.get(url_of("pause_job"), {"backend": "default", "name": "other"})
    assert response.status_code == 400
    assert "There is no such recurring job in the settings." in response.content.decode()


def test_a_task_that_cannot_be_imported_is_a_reason(admin_client: Client) -> None:
    which = {"backend": "default", "name": "gone", "confirmed": "yes"}
    response = admin_client.post(url_of("run_job"), which)
    assert response.status_code == 409
    assert "cannot be imported" in response.content.decode()


def test_without_recurring_jobs_there_is_no_tab(admin_client: Client) -> None:
    address = url_of("recurring_jobs")
    html = html_of(admin_client, address)
    assert re.findall(r'href="([^"]+)" aria-current="page"', html.partition("mqueue-navigation")[2]) == [
        address
    ]
    with override_settings(TASKS=tasks()):
        html = html_of(admin_client, address)
    assert "The settings name no recurring job." in html
    assert f'href="{address}"' not in html
