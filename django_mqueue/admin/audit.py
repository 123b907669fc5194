"""What operators have done: who, what and how many, in Django's log of the admin's actions."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

from .display import printable

__all__ = ["ADDITION", "CHANGE", "DELETION", "Subject", "begin", "end", "go_on", "mark_of"]


@dataclass(frozen=True)
class Subject:
    """What an entry is about. ``id`` is what the admin finds its page by; empty where there is none."""

    model: type[Model]
    id: str
    name: str


def begin(user_id: int, subject: Subject, flag: int, what: str) -> LogEntry:
    """Write down what is about to be done: before it is, so that nothing happens that is not written down."""
    return LogEntry.objects.create(
        user_id=user_id,
        content_type=ContentType.objects.get_for_model(subject.model, for_concrete_model=False),
        object_id=subject.id or None,
        object_repr=printable(subject.name)[:200],
        action_flag=flag,
        change_message=f"Begun: {printable(what)}",
    )


def go_on(pk: int, user_id: int, mark: str) -> LogEntry | None:
    """The entry of an operation that is under way, for its next step; None if that was begun already, or it is not
    there. ``mark`` is what ``mark_of`` gave when the step before ended."""
    entry = LogEntry.objects.filter(pk=pk, user_id=user_id).first()
    if entry is None or mark_of(entry) != mark:
        return None
    said = entry.change_message
    entry.change_message = f"{said} Going on."
    mine = LogEntry.objects.filter(pk=pk, user_id=user_id, change_message=said)
    return entry if mine.update(change_message=entry.change_message) else None


def mark_of(entry: LogEntry) -> str:
    """What tells how far the operation of an entry is."""
    return blake2b(entry.change_message.encode(), digest_size=12).hexdigest()


def end(entry: LogEntry, result: str) -> None:
    """Write down what came of it."""
    entry.change_message = printable(result)
    entry.save(update_fields=["change_message"])
