"""The numbers of a run, in a readable form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..history import Event
from .index import History
from .ownership import gaps


@dataclass(frozen=True)
class Summary:
    """The numbers of a history. Times are in seconds, and groups are named ``topic:group``.

    ``redelivered`` counts starts with an attempt above 1. ``unowned`` is the longest time that a partition had no
    lease. ``lots`` counts the lots of several calls, and ``batches`` the batches of several messages.
    """

    seconds: float
    sent: int
    committed: int
    rolled_back: int
    unknown: int
    ignored: int
    deleted: int
    deliveries: dict[str, int]
    dead_letters: dict[str, int]
    outcomes: dict[str, int]
    redelivered: int
    faults: dict[str, int]
    unowned: float
    scheduled: int
    lots: int
    in_lots: int
    batches: int
    in_batches: int

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "run time", f"{self.seconds:,.1f} s"
        yield "messages sent", f"{self.sent:,}"
        yield "of committed transactions", f"{self.committed:,}"
        yield "of transactions rolled back", f"{self.rolled_back:,}"
        yield "of transactions with an unknown end", f"{self.unknown:,}"
        yield "ignored as duplicates", f"{self.ignored:,}"
        yield "scheduled", f"{self.scheduled:,}"
        yield "deliveries", f"{sum(self.deliveries.values()):,}"
        for name, count in self.deliveries.items():
            yield f"deliveries, {name}", f"{count:,}"
        yield "lots of several calls; messages in them", f"{self.lots:,}; {self.in_lots:,}"
        yield "batches of several messages; messages in them", f"{self.batches:,}; {self.in_batches:,}"
        yield "redeliveries (attempt above 1)", f"{self.redelivered:,}"
        for name, count in self.outcomes.items():
            yield f"runs {name}", f"{count:,}"
        yield "dead letters", f"{sum(self.dead_letters.values()):,}"
        for name, count in self.dead_letters.items():
            yield f"dead letters, {name}", f"{count:,}"
        yield "messages deleted", f"{self.deleted:,}"
        for name, count in self.faults.items():
            yield f"fault: {name}", f"{count:,}"
        yield "longest time a partition had no owner", f"{self.unowned:,.3f} s"

    def markdown(self, heading: str = "In this run") -> str:
        """Return a Markdown table of two columns."""
        return (
            "\n".join([f"| {heading} | |", "|---|--:|", *(f"| {a} | {b} |" for a, b in self.rows())]) + "\n"
        )


def summary(events: Sequence[Event]) -> Summary:
    """Return the numbers of a history."""
    return summed(History(events))


def summed(history: History) -> Summary:
    """Return the numbers of an indexed history."""
    ends = Counter[str]()
    ignored = 0
    deliveries, letters, outcomes = Counter[str](), Counter[str](), Counter[str]()
    redelivered = deleted = scheduled = 0
    for story in history.stories.values():
        for sending in story.sendings:
            ends[history.outcome(sending.sent.transaction)] += 1
            ignored += sending.ignored is not None
            scheduled += sending.sent.delay > 0
        for run in story.runs:
            one = run.started
            deliveries[f"{one.topic}:{one.group}"] += 1
            outcomes[run.outcome or "without an end"] += 1
            redelivered += one.attempt > 1
        if story.others:
            deleted += len(story.deleted)
            letters.update(f"{letter.topic}:{letter.group}" for letter in story.dead)
    lots = [handed.messages for handed in history.handed if handed.calls > 1]
    batches = [handed.messages for handed in history.handed if handed.calls == 1]
    spans = [last - first for ones in gaps(history).values() for first, last, _ in ones]
    return Summary(
        seconds=(history.last - history.events[0].at) / 1e9 if history.events else 0.0,
        sent=sum(ends.values()),
        committed=ends["committed"],
        rolled_back=ends["rolled back"],
        unknown=ends["unknown"],
        ignored=ignored,
        deleted=deleted,
        deliveries=dict(sorted(deliveries.items())),
        dead_letters=dict(sorted(letters.items())),
        outcomes=dict(sorted(outcomes.items())),
        redelivered=redelivered,
        faults=dict(sorted(Counter(fault.kind for fault in history.faults).items())),
        unowned=max(spans, default=0) / 1e9,
        scheduled=scheduled,
        lots=len(lots),
        in_lots=sum(lots),
        batches=len(batches),
        in_batches=sum(batches),
    )
