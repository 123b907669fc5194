"""The page of a delivery state shows what a job returned, unless the topic's messages are masked."""

from __future__ import annotations

import pytest
from django.test import Client, override_settings

from django_mqueue.admin.base import row_ids
from django_mqueue.inspect import Inspected
from django_mqueue.models import DeliveryState
from django_mqueue.testing import perform_job
from tests.features.tasks import jobs
from tests.features.tasks.conftest import tasks
from tests.support.fixtures import with_settings

from .looking import html_of
from .operating import staff, url_of

pytestmark = pytest.mark.django_db(transaction=True)


settings_with_jobs = with_settings(TASKS=tasks())


def shown(client: Client) -> str:
    """Return the page of the only delivery state."""
    row = DeliveryState.objects.get()
    key = row_ids.encode((row.consumer_group, row.topic, row.partition_key, row.message_offset))
    return html_of(client, url_of("deliverystate_change", key))


def mask(message: Inspected) -> Inspected:
    return message


def test_the_return_value_is_shown(admin_client: Client) -> None:
    perform_job(jobs.echo, "<b>", at="noon")
    assert "[[&quot;&lt;b&gt;&quot;],{&quot;at&quot;:&quot;noon&quot;}]" in shown(admin_client)


def test_without_a_return_value_there_is_none(admin_client: Client) -> None:
    perform_job(jobs.fail, "no")
    assert "Return value or progress of the job" in shown(admin_client)


def test_a_mask_hides_it() -> None:
    perform_job(jobs.add, 40, 2)
    with override_settings(MQUEUE={"TOPICS": {"tasks.default": {"MASK": mask}}}):
        hidden = shown(staff("view_deliverystate"))
        seen = shown(staff("view_deliverystate", "unmask_message", name="other"))
    assert ">masked<" in hidden
    assert ">masked<" not in seen
