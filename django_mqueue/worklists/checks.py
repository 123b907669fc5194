"""The system check of worklists: users must be in the queue's database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, register
from django.db import router

from .. import conf


@register("mqueue")
def check_database(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Report users in another database: items refer to users by foreign keys."""
    if conf.problems() or not apps.is_installed("django.contrib.auth"):
        return []
    users, queue = router.db_for_write(get_user_model()), conf.database()
    if users == queue:
        return []
    text = f"worklists: users are in database {users!r}, and the queue is in {queue!r}"
    hint = "Set MQUEUE['DATABASE'] to the database of the users, or remove django_mqueue.worklists."
    return [Error(text, hint=hint, id="mqueue_worklists.E001")]
