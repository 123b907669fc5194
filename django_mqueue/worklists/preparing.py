"""Prepare a database for the declared worklists: permissions, and the registrations of their consumer groups."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connections, router

from .. import conf
from ..models import Offset
from ..service.registration import subscribe
from .models import WorkItem
from .registry import PERMISSIONS, worklists

logger = logging.getLogger("django_mqueue")


def prepare(using: str, **kwargs: Any) -> None:
    """Create permissions and register groups. Do nothing on a database that is not the queue's.

    A registered group keeps each message of its source until the message is an item or a dead letter.

    Log the names of worklists that have items but are no longer declared. Their items cannot be changed.
    """
    if using != conf.database() or not router.allow_migrate_model(using, WorkItem):
        return
    needed = {model._meta.db_table for model in (WorkItem, Permission, Offset)}
    if not needed <= set(connections[using].introspection.table_names()):
        return
    content_type = ContentType.objects.db_manager(using).get_for_model(WorkItem)
    declared = {worklist.name for worklist in worklists()}
    for name in WorkItem.objects.using(using).values_list("worklist", flat=True).distinct():
        if name not in declared:
            logger.warning("worklist not declared, but it has items: %s", name)
    for worklist in worklists():
        for right, text in PERMISSIONS.items():
            Permission.objects.using(using).update_or_create(
                content_type=content_type,
                codename=f"{right}_{worklist.name}",
                defaults={"name": text % worklist.name},
            )
        subscribe(worklist.options.source, worklist.topic, worklist.options.start, using=using)
        subscribe(worklist.topic, worklist.topic, using=using)
