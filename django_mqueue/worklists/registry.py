"""``Worklist``, the base class of worklists, and the worklists that the project has declared."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import models

from ..messages import Message
from ..policy.backoff import Policy
from ..service.registration import Start
from .states import ASSIGNED, DELAYED, UNASSIGNED, State, WorklistError

if TYPE_CHECKING:
    from .models import WorkItem

logger = logging.getLogger("django_mqueue")

NAME_MAX = 40
VALUE_MAX = 191
"""Maximum characters of the value of an attribute."""
PERMISSIONS = {
    "view": "Can view the items of %s",
    "take": "Can take, finish and delay items of %s",
    "assign": "Can assign and cancel items of %s",
    "review": "Can finish items of %s in declared states, and move them on",
}
"""The permissions of each worklist, as the beginning of the codename and the name."""


@dataclass(frozen=True)
class Options:
    """The options of a worklist, checked. ``due_ms`` and ``remind_ms``: milliseconds, or None."""

    source: str
    states: dict[str, State]
    due_ms: int | None
    remind_ms: int | None
    escalate_to: str
    attributes: tuple[str, ...]
    max_attempts: int
    retry: Policy
    visible_ms: int
    max_runtime: float | None
    start: Start = "earliest"


class Worklist:
    """The base class of worklists. ``@worklist`` registers a subclass, and makes one instance of it.

    Each method gets a ``Message`` or a ``WorkItem``, and can be overridden. If a method that gets the message raises an
    exception other than a database error, the message cannot become an item, and is dead-lettered.
    """

    name: str = ""
    options: Options

    @property
    def topic(self) -> str:
        """The topic to which each step of each item is published."""
        return topic_of(self.name)

    def link(self, message: Message) -> models.Model | None:
        """Return the saved model instance that the item is about; None: it is linked to none."""
        return None

    def title(self, message: Message) -> str:
        """Return the title; 200 characters are kept. Default: the linked object as text, or kind and key."""
        linked = self.link(message)
        return (
            str(linked) if linked is not None else f"{message.kind or self.name} {message.key or message.id}"
        )

    def kind(self, message: Message) -> str:
        """Return the kind of the item. Default: the kind of the message."""
        return message.kind

    def attributes(self, message: Message) -> Mapping[str, Any]:
        """Return values of the declared attributes. Default: the payload's values of the same names."""
        payload = message.payload if isinstance(message.payload, Mapping) else {}
        return {name: payload[name] for name in self.options.attributes if payload.get(name) is not None}

    def due(self, message: Message) -> timedelta | None:
        """Return the time until the item is due. Default: the option ``due``."""
        return None if self.options.due_ms is None else timedelta(milliseconds=self.options.due_ms)

    def automate(self, message: Message) -> bool:
        """Return whether a handler finishes the item, by ``work``. Default: people finish all items."""
        return False

    def work(self, item: WorkItem) -> Any:
        """Do the work of the item. Return a JSON value as its result, or None.

        ``finish`` calls it in its transaction, so the effects on the queue's database and the state of the item are one
        commit. The handler of automated items does the same. If the method raises, the item is not finished.
        """
        return None

    def escalate(self, item: WorkItem) -> None:
        """React to an item that is overdue, in the transaction that records it.

        Default: an item that is unassigned, assigned or delayed is assigned to the group of ``escalate_to``.
        """
        from django.contrib.auth.models import Group

        if not self.options.escalate_to or item.state not in (UNASSIGNED, ASSIGNED, DELAYED):
            return
        team = Group.objects.using(item.using).filter(name=self.options.escalate_to).first()
        if team is None:
            logger.error(
                "overdue item not escalated: %s %s: there is no group of users %r",
                item.worklist, item.pk, self.options.escalate_to,
            )  # fmt: skip
        else:
            item.assign(to=team)

    def permission(self, right: str) -> str:
        """Return the name of a permission, for ``user.has_perm``. ``right``: view, take, assign or review."""
        return f"mqueue_worklists.{right}_{self.name}"


_worklists: dict[str, Worklist] = {}


def topic_of(name: str) -> str:
    return f"worklist.{name}"


def check_name(name: object) -> None:
    """Raise ``ValueError`` if ``name`` cannot name a worklist."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name) or len(name) > NAME_MAX:
        raise ValueError(
            f"the name of a worklist must have lower-case letters, digits and underscores, begin with a letter, and"
            f" have at most {NAME_MAX} characters, not {name!r}"
        )


def add(worklist: Worklist) -> None:
    """Register a worklist. Raises ``WorklistError`` if another class has the name."""
    before = _worklists.get(worklist.name)
    new, old = type(worklist), type(before)
    if before is not None and (new.__module__, new.__qualname__) != (old.__module__, old.__qualname__):
        raise WorklistError(
            f"worklist {worklist.name!r} is declared already, by {old.__module__}.{old.__qualname__};"
            " choose another name"
        )
    _worklists[worklist.name] = worklist


def remove(name: str) -> None:
    """Remove a worklist from the registry, for tests."""
    _worklists.pop(name, None)


def worklists() -> list[Worklist]:
    """Return the declared worklists by name."""
    return [_worklists[name] for name in sorted(_worklists)]


def worklist_of(name: str) -> Worklist:
    """Return the declared worklist with this name. Raises ``WorklistError`` if there is none."""
    if name not in _worklists:
        known = ", ".join(sorted(_worklists)) or "none"
        raise WorklistError(
            f"no worklist {name!r} is declared in a module worklists.py; declared are: {known}"
        )
    return _worklists[name]
