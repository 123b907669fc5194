"""The queue's rows: expired leases, retention blockers, topics without a group, state of unknown groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .. import conf
from ..drawing import scales
from ..policy.batching import batches
from ..stats import alarms, retention_blockers, topic_list
from ..stats.results import Hold, KnownTopic
from ..stats.texts import listed
from ..store import removal
from ..store.queries import bounded_counts, group_summaries
from ..store.server import leftovers
from .findings import INFO, WARNING, Finding, command_line

TOPICS_MAX = 200
"""The maximum number of topics whose retention blockers are read."""


def findings(using: str) -> Iterator[Finding]:
    known = dict(sorted(topic_list.known_topics(using).items()))
    pairs = {(topic, group) for topic, one in known.items() for group in one.groups}
    yield from _without_group(using, known.values())
    yield from _expired_leases(using, sorted(pairs))
    yield from _blocked_deletion(using, [one.topic for one in known.values() if one.groups])
    yield from _unknown_groups(using, pairs)
    yield from _without_messages(using, sorted(pairs))


def _without_group(using: str, known: Iterable[KnownTopic]) -> Iterator[Finding]:
    candidates = [one.topic for one in known if not one.groups]
    ends = {
        topic: end for some in batches(candidates) for topic, end in bounded_counts.ends(using, some).items()
    }
    if found := sorted(ends):
        yield Finding(
            WARNING, "topics", f"topics with messages have no group: {listed(found)}",
            "Nothing consumes these messages, and they are never deleted. The name may be mistyped.",
            f"Start its worker, or: {command_line(using, 'mqueue', 'subscribe', found[0], 'GROUP')}",
        )  # fmt: skip


def _expired_leases(using: str, pairs: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    alive = group_summaries.alive(using, [(topic, group, conf.lease_ms(topic)) for topic, group in pairs])
    for topic, group in pairs:
        # A live group takes over an expired lease within seconds.
        for one in leftovers.expired_leases(using, topic, group, 2 * conf.lease_ms(topic)):
            age = scales.duration(one.silent_ms)
            leases = f"{one.leases} lease{'' if one.leases == 1 else 's'}"
            what = f"subscriber {one.name} has not renewed {leases} of group {group} on {topic} for {age}"
            if alive.get((topic, group)):
                why = (
                    "Their messages are not delivered, although workers of the group are alive. An open transaction"
                    " probably locks the rows of the leases."
                )
                yield Finding(WARNING, "leases", what, why, command_line(using, "mqueue", "blockers"))
            else:
                why = (
                    "The worker has ended without releasing them, and no other worker of the group is alive."
                )
                leave = command_line(using, "mqueue", "unsubscribe", topic, group)
                repair = f"Start a worker, which takes them over. Or: {leave}"
                yield Finding(WARNING, "leases", what, why, repair)


def _blocked_deletion(using: str, topics: Sequence[str]) -> Iterator[Finding]:
    for topic in topics[:TOPICS_MAX]:
        for hold in retention_blockers.holds(using, topic):
            if hold.overdue > alarms.LATE_DELETION_AFTER and (alarm := alarms.of_blocker(hold)):
                yield Finding(
                    WARNING, "deletion", f"topic {topic}: {alarm.text}",
                    f"The log grows. The oldest message that is kept has the offset {hold.offset}.",
                    _repair_of(using, hold),
                )  # fmt: skip
                break
    if len(topics) > TOPICS_MAX:
        yield Finding(
            INFO, "deletion", f"deletion was checked for {TOPICS_MAX} of {len(topics)} topics",
            "There are too many topics for one call.", command_line(using, "mqueue", "topics"),
        )  # fmt: skip


def _repair_of(using: str, hold: Hold) -> str:
    topic, group = hold.topic, hold.group or ""
    leave = command_line(using, "mqueue", "unsubscribe", topic, group)
    match hold.reason:
        case "paused":
            return f"{command_line(using, 'mqueue', 'resume', topic, group)}, or {leave}"
        case "no_worker":
            return f"{command_line(using, 'runconsumer', f'{topic}:{group}')}, or {leave}"
        case "waiting" | "in_flight" | "pending":
            return f"{command_line(using, 'mqueue', 'why', topic, str(hold.offset))} explains the message."
        case "settling":
            return f"{command_line(using, 'mqueue', 'blockers')} shows the open transactions."
        case "resetting" | "no_collector":
            return "Start a worker of the topic."
        case _:
            return "Start more workers, or look for slow statements of the server."


def _unknown_groups(using: str, registered: set[tuple[str, str]]) -> Iterator[Finding]:
    tables: dict[tuple[str, str], list[str]] = {}
    for table in leftovers.STATE:
        for pair in leftovers.pairs(using, table):
            if pair not in registered:
                tables.setdefault(pair, []).append(table)
    # Known topics do not include mqueue_operations, and groups may have subscribed meanwhile.
    for some in batches(sorted({topic for topic, _ in tables})):
        for pair in group_summaries.registered(using, some):
            tables.pop(pair, None)
    being_removed = removal.unfinished_among(using, list(tables)) if tables else set()
    for (topic, group), found in sorted(tables.items()):
        if (topic, group) in being_removed:
            continue  # Workers of the topic delete the rest.
        counts = {table: count for table in found if (count := leftovers.count(using, table, topic, group))}
        if counts:
            yield _of_unknown_group(using, topic, group, counts)


def _of_unknown_group(using: str, topic: str, group: str, counts: Mapping[str, int]) -> Finding:
    rows = ", ".join(
        f"{table} ({count}{'+' if count == leftovers.COUNT_MAX else ''})" for table, count in counts.items()
    )
    return Finding(
        WARNING, "state", f"group {group} is not registered for {topic}, and has rows in {rows}",
        "A registration was deleted by hand. The rows take space until the group is unsubscribed, or subscribes again.",
        command_line(using, "mqueue", "unsubscribe", topic, group),
    )  # fmt: skip


def _without_messages(using: str, pairs: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    for topic, group in pairs:
        if count := leftovers.without_message(using, topic, group):
            yield Finding(
                WARNING, "state",
                f"delivery states of {group} on {topic} without a message: {count} of the first {leftovers.COUNT_MAX}",
                "Messages were deleted by hand, or one table was restored. The rows take space, and are never deleted.",
                "Stop the group's workers, and run: " + leftovers.delete_without_message(topic, group),
            )  # fmt: skip
