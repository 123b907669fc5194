"""Index a history by message, key and transaction, and collect the faults of the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from ..history import (
    Closed,
    DeadLettered,
    Deleted,
    Effect,
    Event,
    Fault,
    Finished,
    Handed,
    Ignored,
    Left,
    Registered,
    Sent,
    Started,
    Unowned,
)
from .stories import Fate, Run, Sending, Story
from .world import World

NAMED = {"killed", "stopped", "continued", "left", "joined", "ready", "abandoned", "silent", "heard"}
"""Faults with a worker or publisher as target."""


class History:
    """The events that the rules need, indexed in one pass."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = sorted(events, key=attrgetter("at"))  # The events are usually sorted already.
        self.first = self.events[0].at if self.events else 0
        self.last = self.events[-1].at if self.events else 0
        self.world = World()
        self.stories: dict[str, Story] = {}
        self.registered: dict[tuple[str, str], Registered] = {}
        self.groups: defaultdict[str, list[Registered]] = defaultdict(list)
        """Registered groups by topic."""
        self.closed: dict[str, list[Closed]] = {}
        self.transactions: defaultdict[str, list[Story]] = defaultdict(list)
        self.by_key: defaultdict[tuple[str, str, str], list[Run]] = defaultdict(list)
        """Runs by group, topic and key, in the order of their starts."""
        self.faults: list[Fault] = []
        self.unowned: list[Unowned] = []
        self.handed: list[Handed] = []
        self.left: list[Left] = []
        self._publishers: set[str] = set()
        self._active: defaultdict[str, dict[Run, None]] = defaultdict(dict)
        """The running messages of each worker."""
        self._gone: set[str] = set()
        """Workers that have ended."""
        steps = self._steps()
        for event in self.events:
            steps[type(event)](event)
        self._decide()

    def outcome(self, transaction: str) -> str:
        """Return the outcome of a transaction: ``committed``, ``rolled back``, or ``unknown``."""
        closed = self.closed.get(transaction)
        return closed[-1].outcome if closed else "unknown"

    def told_of(self, stories: Iterable[Story], events: Iterable[Event], slack: int) -> tuple[Event, ...]:
        """Return all events of these messages, and the faults that may affect them, in the order of time."""
        found: list[Event] = [*events]
        leases: set[str] = set()
        for story in stories:
            found += _events_of(story, self.closed)
            leases.update(run.lease for run in story.runs)
        if not found:
            return ()
        first, last = min(e.at for e in found) - slack, max(e.at for e in found) + slack
        names = {e.worker for e in found if isinstance(e, Started | Finished)}
        for event in found:
            if isinstance(event, Sent):
                names.update(_names(event.publisher))
        found += [f for f in self.faults if first <= f.at <= last and _concerns(f, names, leases)]
        once = {id(event): event for event in found}.values()
        return tuple(sorted(once, key=attrgetter("at")))

    def _steps(self) -> dict[type, Callable[[Any], None]]:
        return {
            Registered: self._on_registered,
            Sent: self._on_sent,
            Ignored: self._on_ignored,
            Closed: self._on_closed,
            Started: self._on_started,
            Finished: self._on_finished,
            Handed: self.handed.append,
            DeadLettered: self._on_other,
            Effect: self._on_effect,
            Deleted: self._on_other,
            Left: self._on_left,
            Fault: self._on_fault,
            Unowned: self.unowned.append,
        }

    def _story(self, message: str) -> Story:
        story = self.stories.get(message)
        if story is None:
            story = self.stories[message] = Story(message)
        return story

    def _on_registered(self, event: Registered) -> None:
        if (event.topic, event.group) not in self.registered:
            self.registered[event.topic, event.group] = event
            self.groups[event.topic].append(event)

    def _on_sent(self, event: Sent) -> None:
        story = self._story(event.message)
        story.sendings.append(Sending(event))
        self.transactions[event.transaction].append(story)
        if event.publisher not in self._publishers:
            self._publishers.update(_names(event.publisher))

    def _on_ignored(self, event: Ignored) -> None:
        story = self._story(event.message)
        if story.sendings and story.sendings[-1].ignored is None:
            story.sendings[-1].ignored = event
        else:
            story.others.append(event)

    def _on_closed(self, event: Closed) -> None:
        self.closed.setdefault(event.transaction, []).append(event)

    def _on_started(self, event: Started) -> None:
        run = Run(event)
        self._story(event.message).runs.append(run)
        if event.key is not None:
            self.by_key[event.group, event.topic, event.key].append(run)
        if event.worker in self._gone:  # The history noted the worker's end shortly before this start.
            run.end = event.at
            return
        active = self._active[event.worker]
        if active:
            run.beside = event.at
            for other in active:
                other.beside = min(other.beside, event.at)
        active[run] = None

    def _on_finished(self, event: Finished) -> None:
        story = self._story(event.message)
        for run in reversed(story.runs):
            one = run.started
            if (
                run.finished is None
                and one.worker == event.worker
                and one.group == event.group
                and one.attempt == event.attempt
            ):
                run.finished, run.end = event, event.at
                active = self._active[event.worker]
                active.pop(run, None)
                run.company = next((r for r in reversed(active) if r.started.group == event.group), None)
                return
        story.others.append(event)

    def _on_effect(self, event: Effect) -> None:
        self._story(event.message).effects.append(event)

    def _on_other(self, event: DeadLettered | Deleted) -> None:
        self._story(event.message).others.append(event)

    def _on_left(self, event: Left) -> None:
        self.left.append(event)
        if event.message in self.stories:
            self.stories[event.message].others.append(event)

    def _on_fault(self, event: Fault) -> None:
        self.faults.append(event)
        target = event.target
        if target in self._publishers:
            return  # Faults of publishers excuse no worker.
        if event.kind in ("killed", "left") and target in self._gone:
            self.world.is_over(
                target, event.at
            )  # The worker noted its own end, but its threads continued for a moment.
            return
        active = self._active.get(target)
        self.world.note(event.kind, target, event.at, idle=not active)
        if event.kind in ("killed", "left"):
            self._gone.add(target)
        elif event.kind == "joined":
            self._gone.discard(target)
        elif event.kind != "abandoned":
            return
        for run in active or ():
            run.end = event.at
        self._active.pop(target, None)

    def _decide(self) -> None:
        """Set the fate of each message. An unknown transaction has committed as a whole if any of its messages was
        seen.
        """
        fates: dict[str, Fate] = {}
        for transaction, stories in self.transactions.items():
            outcome = self.outcome(transaction)
            if outcome == "committed":
                fates[transaction] = "committed"
            elif outcome == "rolled back":
                fates[transaction] = "never"
            else:
                proof = any(self._proves(story, transaction) for story in stories)
                fates[transaction] = "committed" if proof else "maybe"
        for story in self.stories.values():
            found = {fates[s.sent.transaction] for s in story.sendings if s.ignored is None}
            story.fate = "committed" if "committed" in found else "maybe" if "maybe" in found else "never"

    def _proves(self, story: Story, transaction: str) -> bool:
        """Return True if only this transaction can have stored a message that was seen."""
        if not story.is_seen():
            return False
        stored = [s.sent.transaction for s in story.sendings if s.ignored is None]
        return [one for one in stored if self.outcome(one) != "rolled back"] == [transaction]


def _names(publisher: str) -> set[str]:
    """Return the names of a publisher in faults. The writer ``p.1.slow`` may be a thread of the process ``p.1``."""
    parts = publisher.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def _events_of(story: Story, closed: dict[str, list[Closed]]) -> Iterator[Event]:
    for sending in story.sendings:
        yield sending.sent
        if sending.ignored:
            yield sending.ignored
        yield from closed.get(sending.sent.transaction, [])
    for run in story.runs:
        yield run.started
        if run.finished:
            yield run.finished
    yield from story.effects
    yield from story.others


def _concerns(fault: Fault, names: set[str], leases: set[str]) -> bool:
    """Return True if a fault belongs to a story: it hit a worker or the lease of the story, or the whole run."""
    if fault.kind in NAMED:
        return fault.target in names
    return fault.kind != "stolen" or any(fault.target.startswith(lease) for lease in leases)
