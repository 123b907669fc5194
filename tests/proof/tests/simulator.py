"""A small simulation of a correct queue under faults. It writes histories without breaches.

Time advances in small steps. Publishers send, commit and roll back. Workers take leases, claim, start a moment later,
finish, and answer a moment after that. Between these steps, a worker may be killed or stopped, the server may be down,
or a lease may be stolen. A few dictionaries replace the database. As in the database, an answer must match lease and
token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.proof.history import (
    Closed,
    DeadLettered,
    Deleted,
    Event,
    Fault,
    Finished,
    Registered,
    Sent,
    Started,
    Unowned,
)
from tests.proof.tests.stories import TOPIC, ns

GROUPS = {"billing": False, "ledger": True}
"""Each group's name, and True if the group is strict."""
LEASE, RENEW, MOST = 5.0, 1.0, 3
ENDS = {"done": 80, "failed": 8, "postponed": 5, "rejected": 3, "die": 2, "linger": 2}


@dataclass(eq=False)
class Row:
    name: str
    key: str | None
    offset: int
    partition: str
    due: float = 0.0


@dataclass(eq=False)
class State:
    """A group's state of a message."""

    token: int = 0
    acked: bool = False
    in_flight: bool = False
    handed: bool = False
    alone: bool = False
    retries: int = 0
    failures: int = 0
    due: float = 0.0


@dataclass(eq=False)
class Work:
    """A delivery in a worker: claimed, then running until ``end``, then with an ``outcome`` to answer."""

    group: str
    row: Row
    token: int
    attempt: int
    alone: bool
    end: float | None = None
    outcome: str = ""


@dataclass(eq=False)
class Worker:
    name: str
    stopped_until: float = 0.0
    renewed: float = 0.0
    works: list[Work] = field(default_factory=list)


@dataclass(eq=False)
class Publisher:
    name: str
    keys: list[str | None]
    rows: list[Row] = field(default_factory=list)
    commit_at: float = 0.0


class Queue:
    """The simulated queue with its workers and publishers. ``events`` is the history."""

    def __init__(self, dice: Random, seconds: float, faults: float) -> None:
        self.dice, self.seconds, self.faults = dice, seconds, faults
        self.now, self.down_until = 0.0, 0.0
        self.events: list[Event] = [
            Registered(0, TOPIC, group, strict, MOST) for group, strict in GROUPS.items()
        ]
        self.log: dict[int, Row] = {}
        self.scheduled: list[Row] = []
        self.states: dict[tuple[str, int], State] = {}
        self.leases: dict[tuple[str, str], tuple[str, float]] = {}
        self.unowned: set[tuple[str, str]] = set()
        self._count = 0
        self.workers = [self._join() for _ in range(3)]
        self.publishers = [Publisher(f"p{n}", [f"p{n}-a", f"p{n}-b", None]) for n in range(2)]

    def play(self) -> list[Event]:
        """Run under faults for ``seconds``, and then without faults until all messages are finished."""
        while self.now < self.seconds or self.log or self.scheduled or any(p.rows for p in self.publishers):
            assert self.now < self.seconds + 600, "the simulation does not end"
            self._step(calm=self.now >= self.seconds)
        for worker in self.workers:
            self._note("left", worker.name)
        return self.events

    def _step(self, *, calm: bool) -> None:
        self.now += self.dice.uniform(0.005, 0.2)
        if self.down_until and self.now >= self.down_until:
            self.down_until = 0.0
            self._note("server up")
        if not calm and self.dice.random() < self.faults:
            self._fault()
        for publisher in self.publishers:
            self._publish(publisher, calm=calm)
        for worker in self.dice.sample(self.workers, len(self.workers)):
            self._turn(worker)
        if not self.down_until:
            self._promote()
            self._collect()
            self._observe()

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _write(self, kind: type[Event], *values: object) -> None:
        """Add an event a moment after the last event, so that no two events have the same time."""
        self.now += 1e-6
        self.events.append(kind(ns(self.now), *values))  # type: ignore[arg-type]

    def _note(self, kind: str, target: str = "") -> None:
        self._write(Fault, kind, target)

    def _join(self) -> Worker:
        worker = Worker(f"w{self._next()}")
        self._note("joined", worker.name)
        return worker

    def _fault(self) -> None:
        worker = self.dice.choice(self.workers)
        match self.dice.choice(["kill", "kill", "stop", "server", "steal"]):
            case "kill":
                self._kill(worker)
            case "stop" if not worker.stopped_until:
                self._note("stopped", worker.name)
                worker.stopped_until = self.now + self.dice.uniform(0.5, 2 * LEASE)
            case "server" if not self.down_until:
                self._note("server down")
                self.down_until = self.now + self.dice.uniform(0.5, 1.5 * LEASE)
            case "steal" if self.leases and not self.down_until:
                group, partition = self.dice.choice(sorted(self.leases))
                self._note("stolen", f"{group} {TOPIC} {partition}")
                self.leases[group, partition] = (self.leases[group, partition][0], -LEASE)

    def _kill(self, worker: Worker) -> None:
        self._note("killed", worker.name)
        self.workers[self.workers.index(worker)] = self._join()

    def _publish(self, publisher: Publisher, *, calm: bool) -> None:
        transaction = f"{publisher.name}-t{publisher.rows[0].name}" if publisher.rows else ""
        if publisher.rows and self.now >= publisher.commit_at:
            rows, publisher.rows = publisher.rows, []
            if self.down_until:
                outcome = self.dice.choice(["unknown", ""])
            else:
                outcome = self.dice.choice(["committed"] * 8 + ["rolled back", "unknown"])
            if outcome == "committed" or (outcome != "rolled back" and self.dice.random() < 0.5):
                self.log.update((row.offset, row) for row in rows if not row.due)
                self.scheduled += [row for row in rows if row.due]
            if outcome:
                self._write(Closed, transaction, outcome)
        elif not publisher.rows and not calm and not self.down_until and self.dice.random() < 0.3:
            key = self.dice.choice(publisher.keys)
            for _ in range(self.dice.randrange(1, 4)):
                offset = self._next()
                row = Row(f"m{offset}", key, offset, key or f" {offset % 2:04d}")
                publisher.rows.append(row)
                transaction = f"{publisher.name}-t{publisher.rows[0].name}"
                delay = self.dice.uniform(0.1, 3) if self.dice.random() < 0.1 else 0.0
                self._write(Sent, publisher.name, transaction, row.name, TOPIC, key, delay)
                row.due = self.now + delay if delay else 0.0
            publisher.commit_at = self.now + self.dice.uniform(0, 0.5)

    def _turn(self, worker: Worker) -> None:
        if worker.stopped_until:
            if self.now < worker.stopped_until:
                return
            worker.stopped_until = 0.0
            self._note("continued", worker.name)
        for work in worker.works:
            if work.end is None:
                self._start(worker, work)
            elif self.now >= work.end and not work.outcome and not self._finish(worker, work):
                return
        if not self.down_until and self.dice.random() < 0.7:
            self._renew(worker)
            for work in [w for w in worker.works if w.outcome]:
                self._answer(worker, work)
            if self.dice.random() < 0.8:
                self._claim(worker)

    def _start(self, worker: Worker, work: Work) -> None:
        row = work.row
        self._write(Started, worker.name, work.group, TOPIC, row.key, row.name, row.offset, work.attempt)
        work.end = self.now + self.dice.choice([0.0, 0.0, 0.3])

    def _finish(self, worker: Worker, work: Work) -> bool:
        """Return True if the worker survives the run."""
        # A message makes the same request each time: some always fail, and some kill each worker.
        wishes = Random(work.row.offset if work.row.offset % 3 else self.dice.random())
        outcome = wishes.choices(list(ENDS), list(ENDS.values()))[0]
        if outcome == "die":
            self._kill(worker)
            return False
        work.outcome = "done" if outcome == "linger" else outcome
        if outcome == "postponed" and self.dice.random() < 0.5:
            work.outcome = "done"
        self._write(Finished, worker.name, work.group, work.row.name, work.attempt, work.outcome)
        return True

    def _renew(self, worker: Worker) -> None:
        for place in sorted({*self._places(), *self.leases}):
            holder, renewed = self.leases.get(place, ("", -LEASE))
            if holder == worker.name:
                if self.now - worker.renewed >= RENEW:
                    self.leases[place] = (holder, self.now)
            elif self.now - renewed >= LEASE and self.dice.random() < 0.4:
                self.leases[place] = (worker.name, self.now)
        if self.now - worker.renewed >= RENEW:
            worker.renewed = self.now

    def _places(self) -> list[tuple[str, str]]:
        partitions = sorted({row.partition for row in self.log.values()})
        return [(group, partition) for group in GROUPS for partition in partitions]

    def _is_mine(self, worker: Worker, work: Work) -> bool:
        holder, _ = self.leases.get((work.group, work.row.partition), ("", 0.0))
        state = self.states.get((work.group, work.row.offset))
        return holder == worker.name and state is not None and state.token == work.token and state.in_flight

    def _answer(self, worker: Worker, work: Work) -> None:
        worker.works.remove(work)
        if not self._is_mine(worker, work):
            return
        state = self.states[work.group, work.row.offset]
        state.in_flight = state.alone = False
        if work.outcome == "done":
            state.acked = True
        elif work.outcome == "postponed":
            state.handed, state.due = False, self.now + 0.2
        else:
            state.failures, state.due = state.failures + 1, self.now + 0.2
            if work.outcome == "rejected" or state.failures >= MOST:
                self._bury(work.group, work.row, state)

    def _bury(self, group: str, row: Row, state: State) -> None:
        state.acked, state.in_flight = True, False
        self._write(DeadLettered, TOPIC, group, row.name, state.failures)

    def _claim(self, worker: Worker) -> None:
        """Claim one message, if the worker has room. An unanswered message runs alone in its worker."""
        if len(worker.works) >= 3 or any(w.alone and self._is_mine(worker, w) for w in worker.works):
            return
        mine = {work.token for work in worker.works}
        for group, row in self._candidates(worker, mine):
            state = self.states.setdefault((group, row.offset), State())
            alone = state.in_flight
            if alone and worker.works:
                continue
            state.failures += state.alone
            if alone and state.failures >= MOST:
                self._bury(group, row, state)
                return
            state.retries += state.handed
            state.token, state.in_flight, state.handed, state.alone = self._next(), True, True, alone
            worker.works.append(Work(group, row, state.token, state.retries + 1, alone))
            return

    def _candidates(self, worker: Worker, mine: set[int]) -> Iterator[tuple[str, Row]]:
        for group, strict in GROUPS.items():
            closed: set[str] = set()
            for offset in sorted(self.log):
                row = self.log[offset]
                state = self.states.get((group, offset), State())
                if state.acked or row.partition in closed:
                    continue
                if strict:
                    closed.add(row.partition)  # No message overtakes the first one of its key.
                if self.leases.get((group, row.partition), ("", 0.0))[0] != worker.name:
                    continue
                if state.token not in mine and (state.in_flight or state.due <= self.now):
                    yield group, row

    def _promote(self) -> None:
        """Move the messages that are due to the end of the log."""
        for row in [row for row in self.scheduled if row.due <= self.now]:
            self.scheduled.remove(row)
            row.offset = self._next()
            self.log[row.offset] = row

    def _collect(self) -> None:
        for offset, row in list(self.log.items()):
            states = [self.states.get((group, offset)) for group in GROUPS]
            if all(state and state.acked for state in states) and self.dice.random() < 0.2:
                del self.log[offset]
                self._write(Deleted, TOPIC, row.name, offset)

    def _observe(self) -> None:
        seen = {
            (group, row.partition)
            for row in self.log.values()
            for group in GROUPS
            if not self.states.get((group, row.offset), State()).acked
            and self.now - self.leases.get((group, row.partition), ("", -LEASE))[1] >= LEASE
        }
        for place in sorted(seen ^ self.unowned):
            self._write(Unowned, TOPIC, *place, place not in seen)
        self.unowned = seen


def history(seed: int, seconds: float = 40.0, faults: float = 0.03) -> list[Event]:
    return Queue(Random(seed), seconds, faults).play()
