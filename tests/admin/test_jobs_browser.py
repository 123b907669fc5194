"""Somebody looks at jobs in a real browser, cancels one that waits, and retries one that has failed."""

from __future__ import annotations

from django.test import override_settings

from tests.features.tasks import jobs
from tests.features.tasks.conftest import tasks
from tests.support.browser import BrowserCase

from .test_jobs import work


@override_settings(TASKS=tasks())
class TestJobsInABrowser(BrowserCase):
    def test_a_job_is_cancelled_and_another_one_retried(self) -> None:
        jobs.add.enqueue(1, 2), jobs.fail.enqueue("bad news"), jobs.echo.enqueue(*range(40), name="x" * 80)
        work()
        waiting = jobs.add.enqueue(3, 4)
        page = self.page
        page.open("/admin/django_mqueue/")
        page.click_link("Jobs")
        page.save_all_ways("jobs")
        page.click_link(f"Cancel {waiting.id}")
        page.click("#mqueue-main form [type=submit]")
        assert f"Job {waiting.id} is cancelled." in page.text_of(".messagelist")
        page.open("/admin/django_mqueue/consumergroup/jobs/?state=dead")
        assert "bad news" in page.text_of("#result_list tbody")
        self.page.click("#result_list tbody td:last-child a")
        page.click("#mqueue-main form [type=submit]")
        work()
        assert jobs.seen.count("bad news") == 2
        assert page.complaints() == []
