"""Pages of Django's admin for work items: their list, one item with its history and buttons, and figures.

It imports ``admin.base``, ``admin.messages``, the modules of worklists, ``browse`` and lower layers.
"""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin import AdminSite

from ..models import WorkItem
from .inline import WorkItemInline
from .model_admin import WorkItemAdmin

__all__ = ["WorkItemInline", "register"]


def register(site: AdminSite) -> None:
    """Add the pages of work items to a site."""
    site.register(WorkItem, WorkItemAdmin)


register(admin.site)
