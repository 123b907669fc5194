"""Operators' actions in Django's log of the admin: user, action and count."""

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
    """The object of a log entry. ``id``: the key of its page in the admin; empty if it has no page."""

    model: type[Model]
    id: str
    name: str


def begin(user_id: int, subject: Subject, flag: int, what: str) -> LogEntry:
    """Log an operation before it runs, so that no operation runs without a log entry."""
    return LogEntry.objects.create(
        user_id=user_id,
        content_type=ContentType.objects.get_for_model(subject.model, for_concrete_model=False),
        object_id=subject.id or None,
        object_repr=printable(subject.name)[:200],
        action_flag=flag,
        change_message=f"Begun: {printable(what)}",
    )


def go_on(pk: int, user_id: int, mark: str) -> LogEntry | None:
    """Return the log entry of a running operation for its next step.

    Return None if the entry does not exist, or if another request has already begun this step. ``mark``: the result of
    ``mark_of`` after the previous step.
    """
    entry = LogEntry.objects.filter(pk=pk, user_id=user_id).first()
    if entry is None or mark_of(entry) != mark:
        return None
    said = entry.change_message
    entry.change_message = f"{said} Continuing."
    mine = LogEntry.objects.filter(pk=pk, user_id=user_id, change_message=said)
    return entry if mine.update(change_message=entry.change_message) else None


def mark_of(entry: LogEntry) -> str:
    """Return a digest of the entry's text. It changes with each step of the operation."""
    return blake2b(entry.change_message.encode(), digest_size=12).hexdigest()


def end(entry: LogEntry, result: str) -> None:
    """Log the result of an operation, or of one of its steps."""
    entry.change_message = printable(result)
    entry.save(update_fields=["change_message"])
