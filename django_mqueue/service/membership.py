"""Being a member of a group: heartbeat, leases by fair shares, finding partitions that nobody works on."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import FencedSubscription, GroupReadsLog, NotRegistered
from ..policy.shares import by_rank, fair_share
from ..store import garbage, heartbeats, leases, log, offsets, session
from ..store.leases import Holder
from . import telling
from .context import Context
from .feed import Feed
from .loading import PER_STATEMENT, batches, load, load_again, read_anew

logger = logging.getLogger("django_mqueue")

LOOSE_SCAN = 10_000
ORPHANED_AFTER = 2
"""Discoveries that a free partition may stay free before anybody takes it, whatever the shares say."""

FORGET_DEAD_MS = 86_400_000
PATIENCE = 2.0
"""Seconds for which a subscriber that stops tries again to release a lease that another transaction has locked."""


class Membership:
    """One subscriber's part in its group. Called from one thread; but for ``tick``, under the context's lock."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self.context, self.feed = context, feed
        self.members: list[str] = []
        self.candidates: dict[str, int] = {}
        """Partitions with news that may have no owner, and how many discoveries ago they were seen."""
        self._known: dict[str, float] = {}
        """Partitions of others, and when that was last seen to be so."""
        self._free_for = 0
        self._predecessor: Holder | None = None
        """An earlier incarnation of this name that still holds leases."""
        self._beat_at = self._renew_at = self._scan_at = -math.inf

    @property
    def lease_ms(self) -> int:
        return conf.lease_ms(self.context.topic)

    @property
    def interval(self) -> float:
        return float(conf.get("DISCOVERY_INTERVAL", self.context.topic))

    def start(self) -> None:
        """Announce this subscriber; take over from one of the same name, which is fenced from now on.

        Leases that the predecessor has locked, in a transaction that is still open, are tried again by ``_discover``.
        """
        context = self.context

        def work(cursor: CursorWrapper) -> Holder | None:
            before = heartbeats.announce(cursor, context.me)
            predecessor = replace(context.me, incarnation=before) if before else None
            return None if predecessor is None or leases.release_free(cursor, predecessor) else predecessor

        self._predecessor = session.run(context.using, work)
        heartbeats.forget_dead(context.using, context.group, context.topic, FORGET_DEAD_MS)
        self._renew_at = time.monotonic() + float(conf.get("LEASE_RENEWAL_INTERVAL", context.topic))

    def stop(self, *, patient: bool = True) -> None:
        """Release all leases and deregister, so that others take over at once.

        ``patient``: tries locked leases again for up to ``PATIENCE`` seconds. What is locked then expires.
        """
        context = self.context

        def work(cursor: CursorWrapper) -> bool:
            heartbeats.deregister(cursor, context.me)
            return leases.release_free(cursor, context.me)

        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while not session.run(context.using, work):
            if not patient or session.in_transaction(context.using) or time.monotonic() > deadline:
                break
            pause.wait(0.05)
        context.drop(list(context.partitions), "stopped")

    def heard(self, partition: str) -> None:
        """News of a partition that is not mine: perhaps nobody's."""
        if partition in self.candidates:
            return
        seen = self._known.get(partition)
        if seen is None:
            self.candidates[partition] = 0
        elif time.monotonic() - seen > 2 * self.interval:
            self.candidates[partition] = 1  # Most likely still the other's: the next discovery looks.

    def tick(self) -> None:
        """Whatever of heartbeat, renewal and discovery is due; between them at most one statement, none when idle."""
        with self.context.lock:
            self._tick()

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._renew_at or self.context.doubt:
            self.context.doubt = False
            self._renew()
            self._renew_at = now + float(conf.get("LEASE_RENEWAL_INTERVAL", self.context.topic))
        if now >= self._beat_at:
            self._discover()
            self._beat_at = time.monotonic() + self.interval
        else:
            self._take_new()

    def due_in(self) -> float:
        """Seconds until a heartbeat or a renewal is due."""
        return max(min(self._beat_at, self._renew_at) - time.monotonic(), 0)

    def keep_up(self) -> None:
        """Renew and beat if it is time to, and nothing else."""
        context, now = self.context, time.monotonic()
        if now >= self._renew_at:
            if leases.renew(context.using, context.me) != len(context.partitions):
                context.doubt = True
            heartbeats.beat(context.using, context.me)
            self._renew_at = now + float(conf.get("LEASE_RENEWAL_INTERVAL", context.topic))

    def _renew(self) -> None:
        context = self.context
        if leases.renew(context.using, context.me) != len(context.partitions):
            self._compare()

    def _compare(self) -> None:
        """See which leases are mine: forget what is not, work on what else is."""
        mine = leases.held(self.context.using, self.context.me)
        self.context.drop([name for name in self.context.partitions if name not in mine])
        self._load(mine - self.context.partitions.keys())

    def _check_in(self) -> None:
        """Beat; raise ``NotRegistered``, ``GroupReadsLog`` or ``FencedSubscription`` if there is no place for it."""
        context = self.context
        registration, settled = offsets.registration_and_settled(context.using, context.group, context.topic)
        self.feed.hear_settled(context.topic, settled)
        if registration is None:
            self.stop(patient=False)
            raise NotRegistered(context.topic, context.group)
        if registration.reads_log:
            self.stop(patient=False)
            raise GroupReadsLog(context.topic, context.group)
        if context.life and registration.life != context.life:
            context.drop(list(context.partitions))  # What is remembered is of an earlier life of the group.
            context.doubt, self._scan_at = True, -math.inf
        if registration.life == context.life and registration.changed != context.changed:
            read_anew(context)
        context.life, context.start = registration.life, registration.start
        context.paused, context.resetting = registration.is_held, registration.resetting
        context.changed = registration.changed
        if not heartbeats.beat(context.using, context.me):
            if heartbeats.incarnation(context.using, context.me) not in (None, context.me.incarnation):
                context.drop(list(context.partitions))
                raise FencedSubscription(context.topic, context.group, context.me.name)
            self.start()

    def look_again(self) -> bool:
        """Discover now, over all partitions; whether leases are free that somebody should take."""
        self._scan_at = -math.inf
        self._discover()
        self._beat_at = time.monotonic() + self.interval
        return self._free_for > 0

    def read_anew(self) -> None:
        """All that is remembered may be of another database: leases, and what is in partitions, mine or nobody's.

        After an outage the leases have not long to live, and a server that has just started is slow.
        """
        self._compare()
        for some in batches(list(self.context.partitions)):
            self.feed.keep_up()
            load_again(self.context, some)
        self._scan_at = self._beat_at = self._renew_at = -math.inf

    def _discover(self) -> None:
        context = self.context
        self._check_in()
        if (before := self._predecessor) and session.run(
            context.using, lambda c: leases.release_free(c, before)
        ):
            self._predecessor = None
        self.members = heartbeats.members(context.using, context.group, context.topic, self.lease_ms)
        if time.monotonic() >= self._scan_at:
            self._scan()
        self._check_candidates()
        leased, free, now_ms = leases.overview(context.using, context.group, context.topic, self.lease_ms)
        context.clock.set(now_ms)
        share = fair_share(leased + len(self.candidates), self.members, context.me.name)
        self._free_for = self._free_for + 1 if free else 0
        wanted = share - len(context.partitions)
        self._leave(max(-wanted, 0))
        if free and (wanted > 0 or self._free_for > ORPHANED_AFTER):
            self._take_free(max(wanted, 1 + free // max(len(self.members), 1) if wanted <= 0 else 0))
        self._take_candidates(share)
        self._give_up_drained()
        self._release_left()

    def _scan(self) -> None:
        """Look at all partitions of the topic: what came while nobody of the group was there."""
        context, after = self.context, ""
        while True:
            found, after = log.unleased_news(
                context.using, context.group, context.topic, context.start, after, LOOSE_SCAN
            )
            for name in found:
                if name not in context.partitions:
                    self.candidates.setdefault(name, 0)
            if not after:
                break
        self._scan_at = time.monotonic() + self.lease_ms / 1000

    def _check_candidates(self) -> None:
        """Those that have a lease row are somebody's, or are found as free ones."""
        now = time.monotonic()
        forget = max(2 * self.interval, self.lease_ms / 1000)
        self._known = {name: seen for name, seen in self._known.items() if now - seen <= forget}
        for some in batches(list(self.candidates)):
            for name in leases.known(self.context.using, self.context.group, self.context.topic, some):
                self.candidates.pop(name, None)
                self._known[name] = now

    def _mine_by_rank(self, name: str) -> bool:
        return self.context.me.name == by_rank(name, self.members)

    def _take_new(self) -> None:
        """Between discoveries: new partitions that fall to me are taken at once, by the statement."""
        fresh = [name for name, age in self.candidates.items() if age == 0 and self._mine_by_rank(name)]
        if fresh:
            self._acquire(fresh[:PER_STATEMENT])

    def _take_candidates(self, share: int) -> None:
        room = share - len(self.context.partitions)
        chosen = [
            name for name, age in self.candidates.items() if age > ORPHANED_AFTER or self._mine_by_rank(name)
        ]
        if len(chosen) < room and len(self.members) == 1:
            chosen = list(self.candidates)
        for some in batches(chosen):
            self._acquire(some)
        for name in self.candidates:
            self.candidates[name] += 1

    def _take_free(self, count: int) -> None:
        context = self.context
        while count > 0:
            # More than are wanted, for some may be locked by one that stands still.
            some = leases.takeable(
                context.using, context.group, context.topic, self.lease_ms, 2 * PER_STATEMENT
            )
            self._forget([name for _, name in some])
            most = min(count, PER_STATEMENT)
            taken = leases.take_over(context.using, context.me, some, self.lease_ms, most) if some else []
            if not self._begin(taken):
                return
            count -= most

    def _acquire(self, names: Iterable[str]) -> int:
        """Take those of the partitions that nobody has: how many are new to me."""
        context, wanted = self.context, list(names)
        self._forget(wanted)
        mine = leases.acquire(context.using, context.me, wanted, self.lease_ms)
        if mine is None:
            # They stay candidates, and wait for the next discovery.
            self.candidates.update({name: max(self.candidates.get(name, 0), 1) for name in wanted})
            return 0
        now = time.monotonic()
        for name in wanted:
            self.candidates.pop(name, None)
            if name not in mine:
                self._known[name] = now
        return self._begin(mine)

    def _forget(self, names: Sequence[str]) -> None:
        """What I remember of partitions that are to be taken now: they were free, or another's, meanwhile."""
        self.context.drop([name for name in names if name in self.context.partitions])

    def _begin(self, mine: Iterable[str]) -> int:
        """Work on partitions that I have leased: how many are new to me."""
        context = self.context
        fresh = [name for name in mine if name not in context.partitions]
        self._load(fresh)
        if fresh:
            logger.info(
                "%s: group %s, topic %s: took %s partitions, has %s now",
                context.me.name, context.group, context.topic, len(fresh), len(context.partitions),
            )  # fmt: skip
        return len(fresh)

    def _load(self, names: Iterable[str]) -> None:
        for some in batches(list(names)):
            load(self.context, some)
            telling.leases_won(self.context, some)

    def _leave(self, count: int) -> None:
        """Choose partitions to give to others: idle ones first. A busy one is finished before it goes."""
        if not count and not any(p.leaving for p in self.context.partitions.values()):
            return
        by_work = sorted(
            self.context.partitions.values(),
            key=lambda p: (not p.leaving, bool(p.in_flight), bool(p.fresh), p.name),
        )
        for place, partition in enumerate(by_work):
            if partition.leaving and place >= count:
                self.context.touch(partition)
            partition.leaving = place < count

    def _release_left(self) -> None:
        context = self.context
        share_is_enough = [p.name for p in context.partitions.values() if p.leaving and not p.in_flight]
        for some in batches(share_is_enough):
            left = leases.release(context.using, context.me, some)
            context.drop(left, "shared")
            self._known.update(dict.fromkeys(left, time.monotonic()))  # News of it is not for me to take.
            logger.info(
                "%s: group %s, topic %s: left %s partitions to others",
                context.me.name, context.group, context.topic, len(left),
            )  # fmt: skip

    def _give_up_drained(self) -> None:
        """Partitions without work for two lease durations need no owner; the next message finds one."""
        before = time.monotonic() - 2 * self.lease_ms / 1000
        context = self.context
        idle = [p.name for p in context.partitions.values() if p.idle_since < before and p.is_drained()]
        for some in batches(idle):
            context.drop(self._give_up(some), "drained")

    def _give_up(self, names: Sequence[str]) -> list[str]:
        """Delete my leases on them, and positions that no group needs; return those whose lease is deleted."""
        context = self.context

        def work(cursor: CursorWrapper) -> list[str]:
            if gone := leases.give_up(cursor, context.me, names):
                garbage.forget_empty(cursor, context.topic, gone)
            return gone

        return session.run(context.using, work)
