"""One subscriber at work: its parts put together, ticked by whoever runs it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import DatabaseError

from ..policy.ids import new_incarnation
from ..store import session, unfinished
from ..store.leases import Holder
from . import together
from .answering import Answering
from .claiming import UNLIMITED, Claiming
from .collecting import Collector
from .context import Context, Options
from .delivery import Delivery
from .feed import Feed
from .membership import Membership
from .watermarks import Watermarks

logger = logging.getLogger("django_mqueue")

REST = 5.0
"""Seconds for which a group is left alone after its statement has waited for a lock in vain."""


class Engine:
    """The protocol for one group on one topic under one name.

    ``expires``: deliveries that are not answered in time are given up (by hand); a runner keeps them alive instead.
    """

    def __init__(
        self, topic: str, group: str, name: str, options: Options, feed: Feed, *, expires: bool
    ) -> None:
        self.context = Context(Holder(group, topic, name, new_incarnation()), options, outbox=feed.outbox)
        self.feed, self.expires = feed, expires
        self.answering = Answering(self.context)
        self.claiming = Claiming(self.context, self.answering)
        self.membership = Membership(self.context, feed)
        self.watermarks = Watermarks(self.context, feed)
        self.collector = Collector(options.using, topic)
        self.careful = False
        """Whether answers ask first which rows another transaction has locked."""
        self._rest_until = -math.inf

    def start(self) -> None:
        """Join the group. The feed is joined first, so that nothing falls between it and what is read then."""
        self.feed.join(self.context.topic, self)
        self.context.tail = self.feed.position(self.context.topic)
        self.membership.start()

    def stop(self, unstarted: Sequence[Delivery] = (), *, patient: bool = True) -> None:
        """Leave the group; ``unstarted``: claimed deliveries that reached no handler.

        Not ``patient``: leases that are locked stay, and run out.
        """
        with self.context.lock:
            self.claiming.make_sure()
            together.give_back(self.answering, unstarted)
            self.watermarks.finish()
            self.membership.stop(patient=patient)
            self.leave_feed()  # Last: who has lost the connection until then begins anew, and settles by the feed.

    def leave_feed(self) -> None:
        self.feed.leave(self.context.topic, self)

    @property
    def strict(self) -> bool:
        return self.context.options.strict

    @property
    def batch(self) -> bool:
        return self.context.options.batch

    def arrived(self, rows: Sequence[tuple[int, str, str]]) -> None:
        """The feed's news: into the memory of my partitions, or a partition that may need an owner."""
        context = self.context
        with context.lock:
            context.tail = max(context.tail, rows[-1][0])
            for offset, name, target in rows:
                if target and target != context.group:
                    continue
                partition = context.partitions.get(name)
                if partition is None:
                    self.membership.heard(name)
                elif partition.arrived(offset) or partition.more:
                    context.touch(partition)

    def read_anew(self, position: int) -> None:
        """The feed's tail was opened again: so is each partition. What handlers have in hand they keep."""
        context = self.context
        with context.lock:
            self.claiming.make_sure()
            context.tail = position
            self.membership.read_anew()

    @property
    def resting(self) -> bool:
        """Whether the group's claims, answers and watermarks are left alone for now."""
        return time.monotonic() < self._rest_until

    @contextmanager
    def resting_after_lock_wait(self) -> Iterator[None]:
        """Let the group rest if a statement of the block waits for a lock in vain: the others of the process go on.

        Consuming by hand the error is the caller's.
        """
        try:
            yield
        except DatabaseError as error:
            if self.expires or not session.is_lock_wait(error):
                raise
            self._rest_until, self.careful = time.monotonic() + REST, True
            logger.warning(
                "group %s, topic %s: rests for %s s: another transaction has its rows locked: %s",
                self.context.group, self.context.topic, REST, error,
            )  # fmt: skip

    def keep_up(self) -> None:
        """Keep the leases and the place in the group, whatever else takes long."""
        self.membership.keep_up()

    def tick(self) -> None:
        """What is due of membership, watermarks and collection; while the group rests, what keeps its leases."""
        with self.context.lock:
            if self.resting:
                self.membership.keep_up()
                return
            self.membership.tick()
            self.watermarks.tick()
            self.collector.tick()
            if self.expires:
                self.claiming.expire()

    def claim(self, capacity: int, start_now: int, most: int = UNLIMITED) -> list[Delivery]:
        """Claim up to ``capacity`` messages, or batches of ``most`` messages; the first ``start_now`` start at once."""
        got: list[Delivery] = []
        if not self.resting:
            with self.resting_after_lock_wait(), self.context.lock:
                got = self.claiming.crowd(capacity, start_now, most)
        return got

    @property
    def has_work(self) -> bool:
        """Whether a claim may get something, as far as memory knows."""
        context = self.context
        if context.paused or self.resting:
            return False
        with context.lock:
            context.ring()
        return bool(context.ready or context.thin or context.stale_waiting)

    @property
    def in_flight(self) -> int:
        return len(self.context.flying)

    @property
    def has_suspects(self) -> bool:
        return bool(self.context.suspected) and not (self.resting or self.context.paused)

    def alone(self) -> Delivery | None:
        """The delivery that runs alone now, if one does."""
        return next((d for d in self.flying() if d.hold.alone), None)

    def flying(self) -> list[Delivery]:
        """What is not answered now: threads that have committed an ack take theirs out of it at any moment."""
        with self.context.lock:
            return list(self.context.flying.values())

    def find_work(self) -> bool:
        """Whether anything of this group could be done now that is not another's: looks everywhere anew."""
        context = self.context
        with context.lock:
            free = self.membership.look_again()
            context.ring()
            if context.paused:
                return bool(context.flying) or context.resetting
            now, strict = context.clock.now(), context.options.strict
            return free or bool(
                context.flying or context.suspected or context.thin or context.stale_waiting
                or self.membership.candidates
                or any(p.suspects or p.has_due(now, strict=strict) for p in context.partitions.values())
            )  # fmt: skip

    def left_to_others(self) -> int:
        """Count messages that could be handled now, but whose partitions other subscribers have leased."""
        context = self.context
        return 0 if context.paused else unfinished.left_to_others(context.using, context.me, context.start)
