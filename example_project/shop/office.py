"""The shop's employees, who work on large refunds."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User

from django_mqueue.worklists import find
from django_mqueue.worklists.figures import finished

CLERK, REVIEWER = "olga", "rita"
RIGHTS = {CLERK: ["take"], REVIEWER: ["review"]}


def employees() -> dict[str, User]:
    """Return the employees by name. They are created at the first call."""
    found = {}
    for name, rights in RIGHTS.items():
        user, _is_new = User.objects.get_or_create(username=name, defaults={"is_staff": True})
        wanted = [f"{right}_refunds" for right in rights]
        user.user_permissions.set(Permission.objects.filter(codename__in=wanted))
        found[name] = User.objects.get(pk=user.pk)
    return found


def work_off() -> int:
    """Let the clerk take each refund that waits, and the reviewer decide about it. Return their number."""
    people = employees()
    done = 0
    for item in find("refunds", state="unassigned"):
        item.take(by=people[CLERK])
        item.move("review", by=people[CLERK], comment="the parcel is back")
        item.finish(by=people[REVIEWER])
        done += 1
    return done


def share() -> str:
    """Return what handlers and people have finished, for the terminal."""
    rows = finished("refunds", weeks=1)
    total, by_handler = sum(row.count for row in rows), sum(row.by_handler for row in rows)
    return f"{by_handler} of {total} refunds of this week were paid by the handler: {by_handler / max(total, 1):.0%}"
