"""A subscriber's membership of its group: heartbeat, fair shares of the leases, discovery of free partitions."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import FencedSubscription, GroupReadsLog, NotRegistered
from ..policy.batching import PER_STATEMENT, batches
from ..policy.shares import fair_share, takes_new
from ..store import garbage, heartbeats, leases, log
from ..store.connection import session
from ..store.leases import Holder
from ..store.queries import discovery
from ..store.queries.discovery import Discovery
from . import events, takeover
from .consumer_state import ConsumerState
from .fetching import load, load_again, mark_for_reread
from .tailer import Tailer

logger = logging.getLogger("django_mqueue")

SCAN_PAGE = 10_000
"""Number of partitions that one statement of a scan visits."""
ORPHANED_AFTER = 2
"""Number of discoveries after which another subscriber takes a free partition, even above its share."""
RELEASE_TIMEOUT = 2.0
"""Seconds for which a stopping subscriber retries to release leases that other transactions have locked."""


class Membership:
    """One subscriber's membership, called from one thread.

    Callers of ``note_arrival``, ``discover_now``, ``reload``, ``stop`` and ``wind_up`` hold the consumer state's lock.
    """

    def __init__(self, state: ConsumerState, tailer: Tailer) -> None:
        self.state, self.tailer = state, tailer
        self.members, self._rank, self._takers = list[str](), -1, 0
        self.candidates: dict[str, int] = {}
        """Partitions with new messages that may have no owner, and the discoveries since each was first seen."""
        self._known: dict[str, float] = {}
        """Partitions whose lease row is not this subscriber's, and the monotonic time when that was last seen."""
        self._found_free = False
        """True if the last discovery found free leases."""
        self._predecessor: Holder | None = None
        """An earlier incarnation of this name that still holds leases."""
        self._beat_at = self._renew_at = self._scan_at = self._discovered_at = -math.inf
        self._is_leaving = False

    @property
    def lease_ms(self) -> int:
        return conf.lease_ms(self.state.topic)

    @property
    def interval(self) -> float:
        return float(conf.get("DISCOVERY_INTERVAL", self.state.topic))

    def start(self) -> None:
        """Announce this subscriber, and release the leases of an earlier one of the same name."""
        state = self.state

        def work(cursor: CursorWrapper) -> Holder | None:
            before = heartbeats.announce(cursor, state.holder)
            old = replace(state.holder, incarnation=before) if before else None
            return None if old is None or leases.release_unlocked(cursor, old) else old

        self._predecessor = session.run(state.using, work)
        heartbeats.forget_dead(state.using, state.group, state.topic)
        self._renew_at = time.monotonic() + float(conf.get("LEASE_RENEWAL_INTERVAL", state.topic))

    def stop(self, *, wait_for_locks: bool = True) -> None:
        """Release all leases and deregister, so that other subscribers take over at once.

        ``wait_for_locks``: retry locked leases for up to ``RELEASE_TIMEOUT`` seconds. Leases that stay locked expire.
        """
        state = self.state

        def work(cursor: CursorWrapper) -> bool:
            heartbeats.deregister(cursor, state.holder)
            return leases.release_unlocked(cursor, state.holder)

        deadline = time.monotonic() + RELEASE_TIMEOUT
        while not session.run(state.using, work):
            if not wait_for_locks or session.in_transaction(state.using) or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self._drop(list(state.partitions), "stopped")

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
        with self.state.lock:
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
        self._leave(len(self.state.partitions))
        self._release_left()

    def _renew_if_due(self, now: float) -> None:
        if now >= self._renew_at or self.state.check_leases:
            self.state.check_leases = False
            self._renew()
            self._renew_at = now + float(conf.get("LEASE_RENEWAL_INTERVAL", self.state.topic))

    def due_in(self, *, backing_off: bool = False) -> float:
        """Return the seconds until a renewal is due or, unless ``backing_off``, a discovery."""
        return max(min(math.inf if backing_off else self._beat_at, self._renew_at) - time.monotonic(), 0)

    def send_heartbeat_if_due(self) -> None:
        """Renew the leases and send a heartbeat if a renewal is due. Do nothing else."""
        state, now = self.state, time.monotonic()
        if now >= self._renew_at:
            if leases.renew(state.using, state.holder) != len(state.partitions):
                state.check_leases = True
            heartbeats.beat(state.using, state.holder, is_leaving=self._is_leaving)
            self._renew_at = now + float(conf.get("LEASE_RENEWAL_INTERVAL", state.topic))

    def _renew(self) -> None:
        if leases.renew(self.state.using, self.state.holder) != len(self.state.partitions):
            self._compare()

    def _compare(self) -> None:
        """Compare memory with the lease table: drop partitions that are lost, load other leases of this subscriber."""
        held = leases.held(self.state.using, self.state.holder)
        self._drop([name for name in self.state.partitions if name not in held])
        self._load(held - self.state.partitions.keys())

    def _check_in(self) -> Discovery:
        """Send a heartbeat and read the group's state. Raise an error if this subscriber must not continue."""
        state = self.state
        read = partial(discovery.read, state.using, state.group, state.topic, self.lease_ms)
        is_announced = heartbeats.beat(state.using, state.holder, is_leaving=self._is_leaving)
        found = read()
        registration = found.registration
        self.tailer.update_shared_settled(state.topic, found.settled)
        if registration is None:
            self.stop(wait_for_locks=False)
            raise NotRegistered(state.topic, state.group)
        if registration.reads_log:
            self.stop(wait_for_locks=False)
            raise GroupReadsLog(state.topic, state.group)
        known, generation = state.registration_generation, registration.generation
        if known and generation != known:
            self._drop(list(state.partitions))  # Memory is of an earlier registration.
            state.check_leases, self._scan_at = True, -math.inf
            self.candidates.clear()
            self._known.clear()
        elif generation == known and registration.changed != state.changed:
            mark_for_reread(state)
        state.registration_generation, state.start = generation, registration.start
        state.paused, state.resetting = registration.is_suspended, registration.resetting
        state.changed = registration.changed
        if not is_announced:
            incarnation = heartbeats.incarnation(state.using, state.holder)
            if incarnation not in (None, state.holder.incarnation):
                self._drop(list(state.partitions))
                raise FencedSubscription(state.topic, state.group, state.holder.name)
            self.start()
            found = read()
        return found

    def discover_now(self) -> bool:
        """Run a discovery over all partitions now. Return whether it found free leases."""
        self._scan_at = -math.inf
        self._discover()
        return self._found_free

    def reload(self) -> None:
        """Read leases and partitions again, and renew leases meanwhile: they expire soon after an outage."""
        self._compare()
        for some in batches(list(self.state.partitions)):
            self.tailer.send_heartbeat_if_due()
            load_again(self.state, some)
        self._scan_at = self._beat_at = self._renew_at = -math.inf

    def _discover(self) -> None:
        state, now = self.state, time.monotonic()
        since_last = min(max(now - self._discovered_at, min(self.interval, 1)), self.lease_ms / 1000)
        self._discovered_at = now
        found = self._check_in()
        leased, free = found.leased, found.free
        state.clock.set(found.now_ms)
        before = self._predecessor
        if before and session.run(state.using, lambda c: leases.release_unlocked(c, before)):
            self._predecessor = None
        self.members, takers, next_check = takeover.release_dead_members(state, found.members, self.interval)
        self._rank = takers.index(state.holder.name) if state.holder.name in takers else -1
        self._takers = len(takers)
        if time.monotonic() >= self._scan_at:
            self._scan()
        checked, unleased = self._check_candidates()
        if before or len(self.members) < len(found.members):  # Leases may have been released meanwhile.
            leased, free = leases.overview(state.using, state.group, state.topic, self.lease_ms)
        share = fair_share(leased + unleased, self.members, state.holder.name)
        self._found_free = free > 0
        missing = share - len(state.partitions)
        self._leave(max(-missing, 0))
        if free and missing > 0:
            self._take_free(missing)
        elif free:
            self._take_free(1 + free // max(len(self.members), 1), int(ORPHANED_AFTER * since_last * 1000))
        self._take_candidates(checked)
        self._give_up_drained()
        self._release_left()
        self._beat_at = time.monotonic() + min(self.interval, next_check)

    def _scan(self) -> None:
        """Search the topic for candidates: partitions with messages above the watermark and no lease row."""
        state, after, unowned = self.state, "", dict[str, int]()
        while True:
            found, after = log.unleased_partitions_with_backlog(
                state.using, state.group, state.topic, state.start, after, SCAN_PAGE
            )
            unowned |= {name: self.candidates.get(name, 0) for name in found if name not in state.partitions}
            if not after:
                break
        self.candidates = unowned  # This drops candidates that another member has finished and given up.
        self._scan_at = time.monotonic() + self.lease_ms / 1000

    def _check_candidates(self) -> tuple[list[str], int]:
        """Remove candidates that have a lease row. They have an owner, or ``_take_free`` takes them.

        Check all candidates that this member takes, and a sample of the others; the next scan replaces the list. Return
        the checked ones without a lease row, and an estimate of how many of all candidates have none.
        """
        now = time.monotonic()
        forget = max(2 * self.interval, self.lease_ms / 1000)
        self._known = {name: seen for name, seen in self._known.items() if now - seen <= forget}
        designated = [name for name in self.candidates if self._is_designated(name)]
        others = list(self.candidates.keys() - designated)
        most = max(PER_STATEMENT, len(others) // max(len(self.members), 1))
        sample = random.sample(others, min(most, len(others)))
        leased: set[str] = set()
        for some in batches([*designated, *sample]):
            leased |= leases.known(self.state.using, self.state.group, self.state.topic, some)
        for name in leased:
            self.candidates.pop(name, None)
            self._known[name] = now
        unseen = (len(others) - len(sample)) * len(leased.intersection(sample)) // max(len(sample), 1)
        return [name for name in [*designated, *sample] if name not in leased], len(self.candidates) - unseen

    def _is_designated(self, name: str, turn: int = 0) -> bool:
        return self._rank >= 0 and takes_new(name, self._rank, self._takers, turn)

    def _take_new(self) -> None:
        """Take new partitions at once, without a discovery, if ``takes_new`` assigns them to this subscriber."""
        fresh = [name for name, age in self.candidates.items() if age == 0 and self._is_designated(name)]
        if fresh:
            self._acquire(fresh[:PER_STATEMENT])

    def _take_candidates(self, checked: Sequence[str]) -> None:
        """Take new partitions, and those that no other member has taken."""
        age = self.candidates
        chosen = [name for name in checked if self._is_designated(name, max(age[name] - ORPHANED_AFTER, 0))]
        for name in age:
            age[name] += 1
        for some in batches(chosen):
            self._acquire(some)

    def _take_free(self, count: int, free_ms: int = 0) -> None:
        """Take up to ``count`` leases that have been free for ``free_ms``."""
        state = self.state
        while count > 0:
            # Read more than wanted: a worker that hangs may have locked some.
            some = leases.takeable(state.using, state.holder, self.lease_ms, 2 * PER_STATEMENT, free_ms)
            self._drop([name for _, name in some])  # They may have had another owner meanwhile.
            most = min(count, PER_STATEMENT)
            take = partial(leases.take_over, holder=state.holder, lease_ms=self.lease_ms, most=most)
            if not some or not self._begin(session.run(state.using, partial(take, free=some))):
                return
            count -= most

    def _acquire(self, names: Iterable[str]) -> int:
        """Acquire leases on the partitions that have no owner. Return how many are new to this subscriber."""
        state, names = self.state, list(names)
        self._drop(names)  # They may have had another owner meanwhile.
        acquired = leases.acquire(state.using, state.holder, names, self.lease_ms)
        if acquired is None:
            # The registration is gone, locked or resetting. The partitions stay candidates for the next discovery.
            self.candidates.update(dict.fromkeys(names, 1))
            return 0
        now = time.monotonic()
        for name in names:
            self.candidates.pop(name, None)
            if name not in acquired:
                self._known[name] = now
        return self._begin(acquired)

    def _drop(self, names: Iterable[str], reason: str = "lost") -> None:
        """Forget partitions. ``reason``: for the signal ``lease_lost``."""
        events.leases_lost(self.state, self.state.drop(names), reason)

    def _begin(self, names: Iterable[str]) -> int:
        """Load partitions that this subscriber has leased. Return how many are new to it."""
        state, fresh = self.state, [name for name in names if name not in self.state.partitions]
        self._load(fresh)
        if fresh:
            fields = state.log_fields("leases_won", partitions=len(fresh))
            text = "partitions leased: subscriber %s, group %s, topic %s, %s new, %s in all"
            who = state.holder.name, state.group, state.topic
            logger.info(text, *who, len(fresh), len(state.partitions), extra=fields)
        return len(fresh)

    def _load(self, names: Iterable[str]) -> None:
        for some in batches(list(names)):
            load(self.state, some)
            events.leases_won(self.state, some)

    def _leave(self, count: int) -> None:
        """Mark ``count`` partitions as leaving: idle ones, then those that only wait for threads, then busy ones."""
        if not count and not self.state.leaving:
            return
        self.state.leaving = count
        handed = {d.status.receipt.partition for d in self.state.in_flight.values() if d.status.handed}
        by_work = sorted(
            self.state.partitions.values(),
            key=lambda p: (p.name in handed, bool(p.in_flight), not p.leaving, bool(p.fresh), p.name),
        )
        for index, partition in enumerate(by_work):
            if partition.leaving and index >= count:
                self.state.mark_ready(partition)
            partition.leaving = index < count

    def _release_left(self) -> None:
        state = self.state
        for some in batches([p.name for p in state.partitions.values() if p.leaving and not p.in_flight]):
            left = leases.release(state.using, state.holder, some)
            self._drop(left, "stopped" if self._is_leaving else "shared")
            self._known.update(dict.fromkeys(left, time.monotonic()))  # Other subscribers take them.
            if left:
                self._found_free = True
                fields = state.log_fields("leases_released", partitions=len(left))
                text = "partitions released: subscriber %s, group %s, topic %s, %s left to others"
                logger.info(text, state.holder.name, state.group, state.topic, len(left), extra=fields)

    def _give_up_drained(self) -> None:
        """Give up partitions without work for two lease durations. Their next message makes them candidates again."""
        state, before = self.state, time.monotonic() - 2 * self.lease_ms / 1000
        idle = [p.name for p in state.partitions.values() if p.idle_since < before and p.is_drained()]
        for some in batches(idle):
            self._drop(garbage.give_up_drained(state.using, state.holder, some), "drained")
