"""URLs of the pages of work items on an admin site."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.urls import reverse

from ..models import WorkItem


def item_url(site: AdminSite, item: WorkItem) -> str:
    return reverse("admin:mqueue_worklists_workitem_change", args=(item.pk,), current_app=site.name)


def list_url(site: AdminSite, worklist: str) -> str:
    url = reverse("admin:mqueue_worklists_workitem_changelist", current_app=site.name)
    return f"{url}?worklist={worklist}"


def step_url(site: AdminSite, verb: str) -> str:
    return reverse("admin:mqueue_worklists_step", args=(verb,), current_app=site.name)
