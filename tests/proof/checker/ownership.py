"""Rule ``unowned``: a partition with work has an owner again within the lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..history import Unowned
from .breaches import Finding, Rules
from .index import History
from .world import FOREVER, Single

Place = tuple[str, str, str]
Span = tuple[int, int]


def unowned(history: History, rules: Rules) -> Iterator[Finding]:
    """No partition with work is without a valid lease for longer than the lease and the slack of takeovers.

    The time counts only while one worker of the group can take the partition all that time. This worker is alive and
    not stopped, and the server is up. It has imported its handlers, which takes long while many processes start. After
    a restart of the server, the time counts only after another lease duration, in which workers reconnect. Time in
    which workers join and leave, and none stays that long, does not count: kills every few seconds leave no worker the
    time.

    The workers of a group are the workers that have run any of its messages.
    """
    most = rules.lease_ns + rules.takeover_ns
    there = _presence(history, rules)
    for (topic, group, partition), spans in gaps(history).items():
        for first, last, event in spans:
            longest = max((_shared((first, last), span) for span in there[topic, group]), default=0)
            if longest > most:
                text = (
                    f"without a lease for {(last - first) / 1e9:.3f} s, {longest / 1e9:.3f} s of it with a worker that"
                    f" could have taken it; allowed are {most / 1e9:.3f} s"
                )
                faults = [fault for fault in history.faults if first - most <= fault.at <= last]
                yield Finding(
                    f"partition {partition!r} of {group!r} on {topic!r}", text, (), (event, *faults)
                )


def gaps(history: History) -> dict[Place, list[tuple[int, int, Unowned]]]:
    """Return the times in which each partition had no owner, each with the event that began it."""
    found: defaultdict[Place, list[tuple[int, int, Unowned]]] = defaultdict(list)
    since: dict[Place, Unowned] = {}
    for event in history.unowned:
        place = (event.topic, event.group, event.partition)
        if not event.owned:
            since.setdefault(place, event)
        elif begun := since.pop(place, None):
            found[place].append((begun.at, event.at, begun))
    for place, begun in since.items():
        found[place].append((begun.at, history.last, begun))
    return found


def _presence(history: History, rules: Rules) -> defaultdict[tuple[str, str], list[Span]]:
    """Return, for each topic and group, the spans in which one worker was present and able to work."""
    groups: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    first_seen: dict[str, int] = {}
    for (group, topic, _), runs in history.by_key.items():
        for run in runs:
            groups[run.started.worker].add((topic, group))
    for story in history.stories.values():
        for run in story.runs:
            one = run.started
            if one.key is None:
                groups[one.worker].add((one.topic, one.group))
            first_seen[one.worker] = min(first_seen.get(one.worker, FOREVER), one.at)
    world = history.world
    without = [
        (begin, end + rules.lease_ns) for spans in (world.down, world.full) for begin, end in spans.all()
    ]
    there: defaultdict[tuple[str, str], list[Span]] = defaultdict(list)
    for worker, places in groups.items():
        lives = [
            (max(begin, world.ready.get(worker, begin)), end)
            for begin, end in world.lives.get(worker, Single()).all()
        ] or [(first_seen[worker], FOREVER)]
        stops = [*world.stops.get(worker, Single()).all(), *world.silences.get(worker, Single()).all()]
        for place in places:
            there[place] += _minus(lives, sorted([*stops, *without]))
    return there


def _minus(spans: list[Span], holes: list[Span]) -> list[Span]:
    """Return the spans without the holes. The holes are sorted."""
    left: list[Span] = []
    for first, last in spans:
        for begin, end in holes:
            if begin >= last:
                break
            if end > first:
                if begin > first:
                    left.append((first, begin))
                first = max(first, end)
        if first < last:
            left.append((first, last))
    return left


def _shared(one: Span, other: Span) -> int:
    return max(min(one[1], other[1]) - max(one[0], other[0]), 0)
