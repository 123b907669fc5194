"""The progress of an operation on dead letters, from its first step to its last."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from ... import conf
from ...browse import bulk_redrive, dead_letters
from ...policy.dead_letter_filter import DeadLetterQuery
from ..base.display import listed, printable

IDS_SHOWN = 5


@dataclass
class Run:
    """The state of an operation between its steps.

    ``ids``: the selection, for the messages. ``up_to``: later dead letters are not affected. ``total``: the number of
    dead letters of the topic. ``first``: the oldest offset, if not all dead letters were counted. ``step_at``: the
    time of the last step. ``position``: the next step continues above this offset; None at the end. ``moved``,
    ``locked`` and ``unregistered``: dead letters that were redriven or purged, were locked by another process, or stay
    because their group is not registered.
    """

    ids: str
    up_to: int
    total: int
    first: int | None
    step_at: float
    position: int | None = 0
    examined: int = 0
    moved: int = 0
    locked: int = 0
    unregistered: int = 0

    def add(self, step: bulk_redrive.Progress) -> None:
        self.position = step.position
        self.examined += step.examined
        self.moved += step.moved
        self.locked += step.locked
        self.unregistered += step.unregistered

    @property
    def progress(self) -> tuple[int, int]:
        """Return (done, total): dead letters, or offsets from ``first`` on if not all were counted."""
        count, total = self.examined, self.total
        if self.first is not None:
            count, total = (self.position or self.up_to) - self.first, self.up_to - self.first + 1
        return max(count, 0), max(total, count, 1)


def begin(query: DeadLetterQuery, up_to: int | None, now: float) -> Run:
    """Return the state before the first step. ``up_to``: the newest dead letter when the plan was shown."""
    using = conf.database()
    newest = dead_letters.newest(using, query.dead_topic)
    up_to = min(up_to or newest, newest)
    every = dead_letters.count(using, DeadLetterQuery(query.topic, query.dead_topic), up_to)
    first = dead_letters.oldest(using, query.dead_topic) if every.is_more else None
    return Run(ids_of(query), up_to, every.number, first, step_at=now - 1)


def successor(offset: int | None) -> str:
    """Return the sentence that names the redriven message; "" if it is no longer in the log."""
    return "" if offset is None else _("It is now message %(offset)s.") % {"offset": offset}


def ids_of(query: DeadLetterQuery) -> str:
    """Return the first ids of the selection and the number of the others, or "" if a filter selects them."""
    if query.offsets is None:
        return ""
    return listed([printable(id_) for id_ in dead_letters.ids(conf.database(), query)], IDS_SHOWN)
