"""Publish in own or in held transactions, and report the results to the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django.db import DatabaseError, connection

from django_mqueue import NotRegistered, OutgoingMessage, Published, publish, publish_many
from django_mqueue.policy.names import spread_partition
from django_mqueue.store.connection.errors import is_lost
from tests.support.threads import RawConnection
from tests.support.transactions import HeldTransaction

from . import time_passing
from .cutting import killed_before
from .model import Model
from .things import Stored


def partition_of(key: str | None, id: str) -> str:
    return key if key is not None else spread_partition(id, time_passing.SETTINGS["SPREAD"])


@dataclass(eq=False)
class Held:
    """An open transaction that has published."""

    transaction: HeldTransaction[list[Published]]
    messages: list[Stored]


@dataclass
class Publisher:
    """The topic, the model, and the story: one line for each step."""

    model: Model
    killer: RawConnection
    topic: str
    held: list[Held] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    count: int = 0

    def tell(self, line: str) -> None:
        self.story.append(line)

    def attempted(self, what: str, call: Callable[[], object], cut: int | None) -> bool:
        """Return whether the call succeeded.

        Return False if the connection was killed in the call, so that its open transaction had no effect.
        """
        try:
            with killed_before(cut, self.killer):
                call()
        except DatabaseError as error:
            if cut is None or not is_lost(error):
                raise
            connection.close()
            self.tell(f"  (killed before statement {cut} of {what})")
            return False
        return True

    def is_pending(self, key: str | None, id: str) -> bool:
        """Return whether an open transaction has published this id. Another publisher of the id would wait."""
        name = (partition_of(key, id), id)
        return any((m.partition, m.id) == name for held in self.held for m in held.messages)

    def is_stored(self, key: str | None, id: str) -> bool:
        return self.model.stored(partition_of(key, id), id) is not None

    def new_id(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def publish(
        self, items: Sequence[tuple[str | None, str]], cut: int | None = None, groups: Sequence[str] = ()
    ) -> None:
        """Publish one message by ``publish``, or several by ``publish_many``. A group of '' means all groups."""
        groups = groups or [""] * len(items)
        got: list[Published] = []
        unknown = [group for group in groups if group and group not in self.model.groups]
        try:
            if not self.attempted("publish", lambda: got.extend(self._publish(items, groups)), cut):
                return
        except NotRegistered as error:
            self.tell(f"publish for {unknown}: refused")
            self.model.require(bool(unknown), f"refused: {error}")
            return
        self.tell(
            f"publish {[(p.offset, p.key, p.id, p.created, g) for p, g in zip(got, groups, strict=True)]}"
        )
        for one, group in zip(got, groups, strict=True):
            self.model.published(one.offset, partition_of(one.key, one.id), one.id, one.created, group)

    def _publish(
        self, items: Sequence[tuple[str | None, str]], groups: Sequence[str] = ()
    ) -> list[Published]:
        outgoing = [
            OutgoingMessage({"id": id, "key": key}, key=key, id=id, group=group or None)
            for (key, id), group in zip(items, groups or [""] * len(items), strict=True)
        ]
        if len(outgoing) == 1:
            (one,) = outgoing
            return [publish(self.topic, one.payload, key=one.key, id=one.id, group=one.group)]
        return publish_many(self.topic, outgoing)

    def hold(self, items: Sequence[tuple[str | None, str]]) -> None:
        """Publish in a transaction that stays open. None of the ids is in the log."""
        transaction = HeldTransaction(lambda: self._publish(items)).start()
        got = transaction.result()
        self.tell(f"hold {[(p.offset, p.key, p.id) for p in got]}")
        new = [Stored(p.offset, partition_of(p.key, p.id), p.id) for p in got if p.created]
        self.held.append(Held(transaction, new))

    def end(self, held: Held, *, commit: bool) -> None:
        self.held.remove(held)
        offsets = [m.offset for m in held.messages]
        self.tell(f"{'commit' if commit else 'roll back'} {offsets}")
        if commit:
            held.transaction.commit()
            self.model.committed(held.messages)
        else:
            held.transaction.rollback()
            self.model.undone(offsets)
