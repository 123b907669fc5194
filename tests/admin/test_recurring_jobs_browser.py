"""Somebody pauses a recurring job in a real browser, runs it once, and resumes it."""

from __future__ import annotations

from django.test import override_settings

from django_mqueue.testing import assert_enqueued
from tests.features.tasks import jobs
from tests.features.tasks.conftest import tasks
from tests.support.browser import BrowserCase

from .test_jobs import work
from .test_recurring_jobs import ENTRIES


@override_settings(TASKS=tasks(recurring=ENTRIES))
class TestRecurringJobsInABrowser(BrowserCase):
    def test_a_job_is_paused_run_and_resumed(self) -> None:
        work()
        page = self.page
        page.open("/admin/django_mqueue/")
        page.click_link("Recurring jobs")
        page.save_all_ways("recurring-jobs")
        self.press("Pause")
        assert "paused" in page.text_of("#mqueue-main tbody")
        page.click_link("Run now sums")
        assert page.driver.execute_script("""
            const form = document.querySelector("#mqueue-main form");
            const stop = Object.assign(document.createElement("input"), {type: "submit", name: "stop"});
            form.append(stop);
            return [null, null, stop].map((submitter) => !form.dispatchEvent(
                new SubmitEvent("submit", {bubbles: true, cancelable: true, submitter})));
        """) == [False, True, False], "a double click sends the form once; Stop ends an operation in steps"
        page.driver.refresh()
        page.click("#mqueue-main form [type=submit]")
        assert "A job of sums is enqueued." in page.text_of(".messagelist")
        self.press("Resume")
        assert "paused" not in page.text_of("#mqueue-main tbody")
        assert_enqueued(jobs.add, 1, 2, count=2)  # the one that runs now, and the next firing
        assert page.complaints() == []

    def press(self, button: str) -> None:
        """Press a button of the job's row, and confirm."""
        self.page.click_link(f"{button} sums")
        self.page.click("#mqueue-main form [type=submit]")
