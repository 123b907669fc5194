"""A subscriber's membership of its group: heartbeat, fair shares of the leases, discovery of free partitions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import FencedSubscription, GroupReadsLog, NotRegistered
from ..policy.batching import PER_STATEMENT, batches
from ..policy.shares import fair_share, owner_of_new
from ..store import garbage, heartbeats, leases, log
from ..store.connection import session
from ..store.leases import Holder
from ..store.queries import discovery
from ..store.queries.discovery import Discovery
from . import events, takeover
from .consumer_state import ConsumerState
from .fetching import load, load_again, mark_stale
from .tailer import Tailer

logger = logging.getLogger("django_mqueue")

LOOSE_SCAN = 10_000
ORPHANED_AFTER = 2
"""Number of discoveries after which any subscriber takes a free partition, even above its share."""

FORGET_DEAD_MS = 86_400_000
RELEASE_TIMEOUT = 2.0
"""Seconds for which a stopping subscriber retries to release leases that other transactions have locked."""


class Membership:
    """One subscriber's membership, called from one thread.

    Callers of ``note_arrival``, ``look_again``, ``reload``, ``stop`` and ``wind_up`` hold the context's lock.
    """

    def __init__(self, context: ConsumerState, tailer: Tailer) -> None:
        self.context, self.tailer = context, tailer
        self.members: list[str] = []
        self.candidates: dict[str, int] = {}
        """Partitions with new messages that may have no owner, and the discoveries since each was first seen."""
        self._known: dict[str, float] = {}
        """Partitions whose lease row is not this subscriber's, and the monotonic time when that was last seen."""
        self._free_for = 0
        """The number of successive discoveries that found free leases."""
        self._predecessor: Holder | None = None
        """An earlier incarnation of this name that still holds leases."""
        self._beat_at = self._renew_at = self._scan_at = -math.inf
        self._is_leaving = False

    @property
    def lease_ms(self) -> int:
        return conf.lease_ms(self.context.topic)

    @property
    def interval(self) -> float:
        return float(conf.get("DISCOVERY_INTERVAL", self.context.topic))

    def start(self) -> None:
        """Announce this subscriber, and release the leases of an earlier one of the same name."""
        context = self.context

        def work(cursor: CursorWrapper) -> Holder | None:
            before = heartbeats.announce(cursor, context.holder)
            predecessor = replace(context.holder, incarnation=before) if before else None
            return None if predecessor is None or leases.release_free(cursor, predecessor) else predecessor

        self._predecessor = session.run(context.using, work)
        heartbeats.forget_dead(context.using, context.group, context.topic, FORGET_DEAD_MS)
        self._renew_at = time.monotonic() + float(conf.get("LEASE_RENEWAL_INTERVAL", context.topic))

    def stop(self, *, patient: bool = True) -> None:
        """Release all leases and deregister, so that other subscribers take over at once.

        ``patient``: retry locked leases for up to ``RELEASE_TIMEOUT`` seconds. Leases that stay locked expire.
        """
        context = self.context

        def work(cursor: CursorWrapper) -> bool:
            heartbeats.deregister(cursor, context.holder)
            return leases.release_free(cursor, context.holder)

        deadline = time.monotonic() + RELEASE_TIMEOUT
        while not session.run(context.using, work):
            if not patient or session.in_transaction(context.using) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        context.drop(list(context.partitions), "stopped")

    def note_arrival(self, partition: str) -> None:
        """Note new messages in a partition that this subscriber does not own. It may have no owner."""
        if partition in self.candidates:
            return
        seen = self._known.get(partition)
        if seen is None:
            self.candidates[partition] = 0
        elif time.monotonic() - seen > 2 * self.interval:
            self.candidates[partition] = 1  # It probably still has its owner: the next discovery checks.

    def tick(self) -> None:
        """Renew leases, and run a discovery with a heartbeat, each if due. Between discoveries, take new partitions."""
        with self.context.lock:
            now = time.monotonic()
            self._renew_if_due(now)
            if now >= self._beat_at:
                self._discover()
            else:
                self._take_new()

    def wind_up(self) -> None:
        """Send heartbeats as a member without a share, take nothing, and release what has nothing in flight.

        The other members share the partitions without this one. It keeps its session lock, so that they take over at
        once if its process is killed before its last handler ends.
        """
        now = time.monotonic()
        self._renew_if_due(now)
        if now >= self._beat_at or not self._is_leaving:
            self._is_leaving = True
            self._check_in()
            self._beat_at = now + self.interval
        self._leave(len(self.context.partitions))
        self._release_left()

    def _renew_if_due(self, now: float) -> None:
        if now >= self._renew_at or self.context.doubt:
            self.context.doubt = False
            self._renew()
            self._renew_at = now + float(conf.get("LEASE_RENEWAL_INTERVAL", self.context.topic))

    def due_in(self, *, resting: bool = False) -> float:
        """Return the seconds until a renewal is due or, unless ``resting``, a discovery."""
        return max(min(math.inf if resting else self._beat_at, self._renew_at) - time.monotonic(), 0)

    def send_heartbeat_if_due(self) -> None:
        """Renew the leases and send a heartbeat if a renewal is due. Do nothing else."""
        context, now = self.context, time.monotonic()
        if now >= self._renew_at:
            if leases.renew(context.using, context.holder) != len(context.partitions):
                context.doubt = True
            heartbeats.beat(context.using, context.holder, is_leaving=self._is_leaving)
            self._renew_at = now + float(conf.get("LEASE_RENEWAL_INTERVAL", context.topic))

    def _renew(self) -> None:
        if leases.renew(self.context.using, self.context.holder) != len(self.context.partitions):
            self._compare()

    def _compare(self) -> None:
        """Compare memory with the lease table: drop partitions that are lost, load other leases of this subscriber."""
        mine = leases.held(self.context.using, self.context.holder)
        self.context.drop([name for name in self.context.partitions if name not in mine])
        self._load(mine - self.context.partitions.keys())

    def _check_in(self) -> Discovery:
        """Send a heartbeat and read the group's state. Raise an error if this subscriber must not continue."""
        context = self.context
        is_announced = heartbeats.beat(context.using, context.holder, is_leaving=self._is_leaving)
        found = self._read_discovery()
        registration = found.registration
        self.tailer.update_shared_settled(context.topic, found.settled)
        if registration is None:
            self.stop(patient=False)
            raise NotRegistered(context.topic, context.group)
        if registration.reads_log:
            self.stop(patient=False)
            raise GroupReadsLog(context.topic, context.group)
        known, generation = context.registration_generation, registration.generation
        if known and generation != known:
            context.drop(list(context.partitions))  # Memory is of an earlier registration.
            context.doubt, self._scan_at = True, -math.inf
        elif generation == known and registration.changed != context.changed:
            mark_stale(context)
        context.registration_generation, context.start = generation, registration.start
        context.paused, context.resetting = registration.is_suspended, registration.resetting
        context.changed = registration.changed
        if not is_announced:
            incarnation = heartbeats.incarnation(context.using, context.holder)
            if incarnation not in (None, context.holder.incarnation):
                context.drop(list(context.partitions))
                raise FencedSubscription(context.topic, context.group, context.holder.name)
            self.start()
            found = self._read_discovery()
        return found

    def _read_discovery(self) -> Discovery:
        context = self.context
        return discovery.read(context.using, context.group, context.topic, self.lease_ms)

    def look_again(self) -> bool:
        """Run a discovery over all partitions now. Return whether it found free leases."""
        self._scan_at = -math.inf
        self._discover()
        return self._free_for > 0

    def reload(self) -> None:
        """Read leases and partitions again, and renew leases meanwhile: they expire soon after an outage."""
        self._compare()
        for some in batches(list(self.context.partitions)):
            self.tailer.send_heartbeat_if_due()
            load_again(self.context, some)
        self._scan_at = self._beat_at = self._renew_at = -math.inf

    def _discover(self) -> None:
        context = self.context
        found = self._check_in()
        leased, free = found.leased, found.free
        context.clock.set(found.now_ms)
        if (before := self._predecessor) and session.run(
            context.using, lambda c: leases.release_free(c, before)
        ):
            self._predecessor = None
        self.members, next_check_in = takeover.live_members(context, found.members, self.interval)
        if time.monotonic() >= self._scan_at:
            self._scan()
        self._check_candidates()
        if before or len(self.members) < len(found.members):  # Some leases were released meanwhile.
            leased, free = leases.overview(context.using, context.group, context.topic, self.lease_ms)
        share = fair_share(leased + len(self.candidates), self.members, context.holder.name)
        self._free_for = self._free_for + 1 if free else 0
        wanted = share - len(context.partitions)
        self._leave(max(-wanted, 0))
        if free and (wanted > 0 or self._free_for > ORPHANED_AFTER):
            self._take_free(max(wanted, 1 + free // max(len(self.members), 1) if wanted <= 0 else 0))
        self._take_candidates(share)
        self._give_up_drained()
        self._release_left()
        self._beat_at = time.monotonic() + min(self.interval, next_check_in)

    def _scan(self) -> None:
        """Search the topic for candidates: partitions with messages above the watermark and no lease row."""
        context, after = self.context, ""
        while True:
            found, after = log.unleased_partitions_with_backlog(
                context.using, context.group, context.topic, context.start, after, LOOSE_SCAN
            )
            for name in found:
                if name not in context.partitions:
                    self.candidates.setdefault(name, 0)
            if not after:
                break
        self._scan_at = time.monotonic() + self.lease_ms / 1000

    def _check_candidates(self) -> None:
        """Remove the candidates that have a lease row. They have an owner, or ``_take_free`` takes them."""
        now = time.monotonic()
        forget = max(2 * self.interval, self.lease_ms / 1000)
        self._known = {name: seen for name, seen in self._known.items() if now - seen <= forget}
        for some in batches(list(self.candidates)):
            for name in leases.known(self.context.using, self.context.group, self.context.topic, some):
                self.candidates.pop(name, None)
                self._known[name] = now

    def _is_designated(self, name: str) -> bool:
        return self.context.holder.name == owner_of_new(name, self.members)

    def _take_new(self) -> None:
        """Take new partitions at once, without a discovery, if ``owner_of_new`` assigns them to this subscriber."""
        fresh = [name for name, age in self.candidates.items() if age == 0 and self._is_designated(name)]
        if fresh:
            self._acquire(fresh[:PER_STATEMENT])

    def _take_candidates(self, share: int) -> None:
        room = share - len(self.context.partitions)
        chosen = [
            name for name, age in self.candidates.items() if age > ORPHANED_AFTER or self._is_designated(name)
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
            # Read more than wanted: a worker that hangs may have locked some.
            some = leases.takeable(context.using, context.holder, self.lease_ms, 2 * PER_STATEMENT)
            self._forget([name for _, name in some])
            most = min(count, PER_STATEMENT)
            take = partial(leases.take_over, holder=context.holder, lease_ms=self.lease_ms, most=most)
            if not some or not self._begin(session.run(context.using, partial(take, free=some))):
                return
            count -= most

    def _acquire(self, names: Iterable[str]) -> int:
        """Acquire leases on the partitions that have no owner. Return how many are new to this subscriber."""
        context, wanted = self.context, list(names)
        self._forget(wanted)
        mine = leases.acquire(context.using, context.holder, wanted, self.lease_ms)
        if mine is None:
            # The registration is gone, locked or resetting. The partitions stay candidates for the next discovery.
            self.candidates.update({name: max(self.candidates.get(name, 0), 1) for name in wanted})
            return 0
        now = time.monotonic()
        for name in wanted:
            self.candidates.pop(name, None)
            if name not in mine:
                self._known[name] = now
        return self._begin(mine)

    def _forget(self, names: Sequence[str]) -> None:
        """Drop old memory of partitions before they are taken: they may have had another owner meanwhile."""
        self.context.drop([name for name in names if name in self.context.partitions])

    def _begin(self, mine: Iterable[str]) -> int:
        """Load partitions that this subscriber has leased. Return how many are new to it."""
        context = self.context
        fresh = [name for name in mine if name not in context.partitions]
        self._load(fresh)
        if fresh:
            fields = context.log_fields("leases_won", partitions=len(fresh))
            text = "partitions leased: subscriber %s, group %s, topic %s, %s new, %s in all"
            who = context.holder.name, context.group, context.topic
            logger.info(text, *who, len(fresh), len(context.partitions), extra=fields)
        return len(fresh)

    def _load(self, names: Iterable[str]) -> None:
        for some in batches(list(names)):
            load(self.context, some)
            events.leases_won(self.context, some)

    def _leave(self, count: int) -> None:
        """Mark ``count`` partitions as leaving, idle ones first. A busy one is released later."""
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
        releasable = [p.name for p in context.partitions.values() if p.leaving and not p.in_flight]
        for some in batches(releasable):
            left = leases.release(context.using, context.holder, some)
            context.drop(left, "stopped" if self._is_leaving else "shared")
            self._known.update(dict.fromkeys(left, time.monotonic()))  # Other subscribers take them.
            if left:
                fields = context.log_fields("leases_released", partitions=len(left))
                text = "partitions released: subscriber %s, group %s, topic %s, %s left to others"
                logger.info(text, context.holder.name, context.group, context.topic, len(left), extra=fields)

    def _give_up_drained(self) -> None:
        """Give up partitions without work for two lease durations. Their next message makes them candidates again."""
        before = time.monotonic() - 2 * self.lease_ms / 1000
        context = self.context
        idle = [p.name for p in context.partitions.values() if p.idle_since < before and p.is_drained()]
        for some in batches(idle):
            context.drop(self._give_up(some), "drained")

    def _give_up(self, names: Sequence[str]) -> list[str]:
        """Delete this subscriber's leases and unneeded positions. Return the partitions whose leases are deleted."""
        context = self.context

        def work(cursor: CursorWrapper) -> list[str]:
            if gone := leases.delete_drained(cursor, context.holder, names):
                garbage.delete_empty_positions(cursor, context.topic, gone)
            return gone

        return session.run(context.using, work)
