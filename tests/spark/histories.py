"""Made-up histories of a topic: write rows as the queue does, and compute the expected report in plain Python."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from django_mqueue.models import DeliveryState, Message
from django_mqueue.policy.outcomes import PARKED_AT

HOUR = 3_600_000
NOON = 1_772_366_400_000
"""2026-03-01T12:00Z."""
DAY = 24 * HOUR
ERRORS_KEPT = 10
METADATA: dict[str, object] = {"kind": "", "headers": {}, "encoding": "json"}
ENDED = ("finished", "dead", "removed", "aside")

ERRORS = (
    ("TimeoutError: no answer in %d s", "TimeoutError"),
    ("shop.errors.NoSuchOrder: %d", "shop.errors.NoSuchOrder"),
    ("no customer %d\nTraceback: nothing", "no customer #"),
    ("<script>alert(%d)</script>", "<script>alert(#)</script>"),
    ("", "(no text)"),
)


@dataclass
class Sent:
    """A row of the log.

    ``retry_of``: the delivery that was parked for this retry; ``first``: when that message was published.
    """

    offset: int
    topic: str
    key: str | None
    target: str
    published: int
    sent_back: bool = False
    retry_of: int | None = None
    first: int | None = None


@dataclass
class Done:
    """The outcome of one row for one group.

    ``failures``: (at, text, kind) of each failed attempt at this row; ``brought``: those of attempts at the row before
    it. ``gone``: the row was deleted since; only its dead letter is left.
    """

    of: Sent
    group: str
    ending: str
    delivered: int | None
    ended: int | None
    deliveries: int
    failures: list[tuple[int, str, str]] = field(default_factory=list)
    brought: list[tuple[int, str, str]] = field(default_factory=list)
    has_letter: bool = False
    in_flight: bool = False


class History:
    def __init__(
        self, seed: int, topic: str = "orders", groups: tuple[str, ...] = ("billing", "mail, fast")
    ) -> None:
        self.random = random.Random(seed)
        self.topic, self.groups = topic, groups
        self.sent: list[Sent] = []
        self.done: list[Done] = []
        self.gone: list[Done] = []
        self._offset = 1000

    def make(self, messages: int) -> History:
        pick = self.random
        for _ in range(messages):
            self._offset += pick.choice([1, 1, 1, 2, 7])
            key = pick.choice(
                [None, "ada", "ada", "ada", "bob", "<b>&'\"", "=1+1", "ключ", f"k{pick.randrange(30)}"]
            )
            target = pick.choice(["", "", "", "", *self.groups])
            at = NOON + pick.choice([0, HOUR - 1, HOUR, 2 * HOUR - 1, pick.randrange(5 * HOUR)])
            one = Sent(
                self._offset, self.topic, key, target, at, sent_back=bool(target) and pick.random() < 0.3
            )
            self.sent.append(one)
            for group in self.groups if not target else (target,):
                self._deliver(one, group)
        for number in range(5):
            lost = Sent(number + 1, self.topic, "ada", "", NOON)
            at = NOON + pick.randrange(8 * HOUR)
            failure = (at, *self._error())
            self.gone.append(
                Done(lost, pick.choice(self.groups), "dead", at, at, 1, [failure], has_letter=True)
            )
        return self

    def _deliver(self, one: Sent, group: str, before: Done | None = None) -> None:
        pick = self.random
        ending = pick.choice(
            ["never", "open", "finished", "finished", "finished", "finished", "dead", "removed", "aside"]
        )
        if ending == "never":
            return
        done = Done(one, group, ending, None, None, 0)
        if before is not None:
            done.brought = before.brought + before.failures
            done.deliveries = before.deliveries
        at = one.published
        if ending == "removed" and pick.random() < 0.5 and before is None:
            done.ended = at + pick.randrange(HOUR)
            self.done.append(done)
            return
        for _ in range(pick.choice([0, 0, 0, 1, 2, 13])):
            at += pick.randrange(1, HOUR // 10)
            done.delivered, done.deliveries = at, done.deliveries + 1
            at += pick.randrange(1, 5000)
            done.failures.append((at, *self._error()))
        failing = ending == "dead" or (ending == "aside" and pick.random() < 0.7)
        if ending in ("finished", "dead", "aside") or not done.deliveries or pick.random() < 0.5:
            at += pick.randrange(1, HOUR // 3)
            done.delivered, done.deliveries = at, done.deliveries + 1
            done.in_flight = ending == "open"
        at += pick.choice([1, 1000, pick.randrange(1, 2 * HOUR)])
        if ending != "open":
            done.ended = at
        if failing:
            done.failures.append((at, *self._error()))
        done.has_letter = ending == "dead" and pick.random() < 0.7
        self.done.append(done)
        if ending == "aside":
            self._offset += 1
            first = one.first or one.published
            again = Sent(
                self._offset, self.topic, one.key, group, at + HOUR, retry_of=one.offset, first=first
            )
            self.sent.append(again)
            self._deliver(again, group, done)

    def _error(self) -> tuple[str, str]:
        text, kind = self.random.choice(ERRORS)
        return text % self.random.randrange(1000) if "%" in text else text, kind

    def store(self) -> None:
        rows = []
        for one in self.sent:
            again = one.sent_back or one.retry_of is not None
            row = self._row(one.offset, one, f"id-{one.offset}", one.published)
            row.consumer_group = one.target
            if again:
                row.original_id = "original"
            if one.retry_of is not None:
                before = {"offset": one.retry_of, "published_at": one.first, "id": "original", "count": 1}
                row.metadata = {**METADATA, "retry": before}
            rows.append(row)
        self._offset += 1000
        for done in (*self.gone, *self.done):
            if done.has_letter:
                self._offset += 1
                row = self._row(self._offset, done.of, f"{done.of.offset}:{done.group}", done.ended or 0)
                row.topic, row.original_topic, row.original_id = f"{self.topic}_dlq", self.topic, "original"
                row.failed_group, row.failed_at = done.group, done.ended
                row.failure_count, row.last_error = len(done.failures), done.failures[-1][1]
                rows.append(row)
        Message.objects.bulk_create(rows)
        DeliveryState.objects.bulk_create(self._state(done) for done in self.done)

    def _row(self, offset: int, one: Sent, id: str, at: int) -> Message:
        partition = one.key if one.key is not None else f" {offset % 16}"
        return Message(
            offset=offset, topic=self.topic, partition_key=partition, message_id=id, consumer_group="", payload=b"1",
            metadata=METADATA, available_at=at, created_at=at, published_at=at,
        )  # fmt: skip

    def _state(self, done: Done) -> DeliveryState:
        attempts = [*done.brought, *done.failures]
        errors = [
            {"at": at, "attempt": n, "by": "w", "error": text} for n, (at, text, _) in enumerate(attempts, 1)
        ]
        if done.failures and done.ended is not None and done.failures[-1][0] == done.ended:
            errors[-1]["attempt"] = done.deliveries
        if done.ending == "removed":
            errors.append({"at": done.ended, "attempt": 0, "by": "", "error": "removed by hand"})
        return DeliveryState(
            consumer_group=done.group, topic=self.topic,
            partition_key=done.of.key if done.of.key is not None else f" {done.of.offset % 16}",
            message_offset=done.of.offset, acked=done.ending in ENDED, in_flight=done.in_flight,
            invisible_until=PARKED_AT if done.ending == "aside" else 0, retry_count=max(0, done.deliveries - 1),
            failure_count=len(attempts), delivery_token=1,
            delivered_to="w" if done.delivered else "", delivered_at=done.delivered or done.ended or 0,
            acked_at=done.ended, errors=errors[-ERRORS_KEPT:] or None,
        )  # fmt: skip

    # The expected report.

    def steps(
        self, group: str, size: int = HOUR, since: int = 0, until: int = 2**60
    ) -> dict[int, dict[str, object]]:
        """Return the expected figures by the start of each step."""
        found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))

        def note(at: int | None, name: str, value: int = 1) -> None:
            if at is not None and since <= at < until:
                found[at // size * size][name].append(value)

        for one in self.mine(group):
            if one.retry_of is None:
                note(one.published, "published")
        for done in (*self.done, *self.gone):
            if done.group != group:
                continue
            gone = done in self.gone
            for at, *_ in self.kept(done):
                note(at, "failures")
            if done.ending in ("finished", "dead", "removed"):
                note(done.ended, done.ending)
            assert done.ended or done.ending == "open"
            if done.ending in ("finished", "dead") and not gone:
                note(done.ended, "attempts", done.deliveries)
            if done.ending == "finished" and done.ended:
                note(done.ended, "ack", done.ended - (done.of.first or done.of.published))
            if done.delivered and done.deliveries == 1 and done.of.retry_of is None and not gone:
                note(done.delivered, "first_delivery", done.delivered - done.of.published)
        return {
            start: {
                **{
                    name: len(each[name]) for name in ("published", "finished", "dead", "removed", "failures")
                },
                "attempts": sum(each["attempts"]),
                "most_attempts": max(each["attempts"], default=0),
                **{name: percentiles(each[name]) for name in ("first_delivery", "ack")},
            }
            for start, each in found.items()
        }

    def mine(self, group: str) -> Iterable[Sent]:
        return (one for one in self.sent if one.target in ("", group))

    def kept(self, done: Done) -> list[tuple[int, str, str]]:
        """Return the failed attempts at this row whose errors its delivery state still has."""
        removed = done.ending == "removed"
        most = ERRORS_KEPT - removed
        return done.failures[-most:]

    def kinds(self, group: str) -> Counter[str]:
        return Counter(
            kind for done in (*self.done, *self.gone) if done.group == group for _, _, kind in self.kept(done)
        )

    def keys(self) -> Counter[str | None]:
        return Counter(one.key for one in self.sent if one.retry_of is None)

    def lag(self, group: str, start: int = 0) -> int:
        ended = {done.of.offset for done in self.done if done.group == group and done.ending in ENDED}
        return sum(one.offset > start and one.offset not in ended for one in self.mine(group))

    def done_by_all(self, upto: int) -> set[int]:
        """Return offsets of messages that garbage collection may delete."""
        ended = {(done.of.offset, done.group) for done in self.done if done.ending in ENDED}
        return {
            one.offset
            for one in self.sent
            if one.offset <= upto
            and all((one.offset, group) in ended for group in ([one.target] if one.target else self.groups))
        }

    def backlog(self, group: str, at: int) -> int:
        """Return the backlog just before ``at``."""
        ended = {d.of.offset for d in self.done if d.group == group and d.ended is not None and d.ended < at}
        return sum(one.published < at and one.offset not in ended for one in self.mine(group))


def percentiles(values: list[int]) -> tuple[int | None, int | None, int | None, int]:
    """Return p50, p95 and p99 by the nearest-rank method, and the number of values."""
    if not values:
        return None, None, None, 0
    ordered = sorted(values)
    p50, p95, p99 = (ordered[math.ceil(len(ordered) * point / 100) - 1] for point in (50, 95, 99))
    return p50, p95, p99, len(ordered)
