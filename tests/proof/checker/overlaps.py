"""Rule ``overlap``: in a group, one worker processes a key at a time, and one run processes a message at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .breaches import Finding, Rules
from .excuses import started_late
from .index import History
from .stories import Run
from .world import World


def overlaps(history: History, rules: Rules) -> Iterator[Finding]:
    """Two workers never run messages of one group and key at the same time. In a strict group, even one worker runs
    them one after another.

    Two runs of one message never overlap, with or without a key. A run lasts until its handler or its worker ends. If
    the worker was killed, the history may note the kill later, within the slack.

    An overlap is excused if the worker of the earlier run may have lost the lease before the later run started. That
    is: between the slack before its own start and the later start, the worker was stopped, the server was down, or the
    lease was stolen. The earlier run may continue, and the queue refuses its answer. An overlap is also excused if the
    later run's worker was stopped just before its start. Then the later run is stalled, and its claim is the older one.
    """
    for (group, topic, key), runs in history.by_key.items():
        registered = history.registered.get((topic, group))
        strict = registered is not None and registered.strict
        for earlier, later in _pairs(runs, same_worker=strict):
            if not _excused(history.world, earlier, later, rules):
                yield _finding(history, earlier, later, f"key {key!r}", group)
    for story in history.stories.values():
        if len(story.runs) > 1:
            yield from _of_one_message(history, story.runs, rules)


def _of_one_message(history: History, runs: Sequence[Run], rules: Rules) -> Iterator[Finding]:
    for group in {run.started.group for run in runs}:
        mine = [run for run in runs if run.started.group == group]
        for earlier, later in _pairs(mine, same_worker=True):
            one = later.started
            registered = history.registered.get((one.topic, group))
            judged = one.key is not None and (
                earlier.started.worker != one.worker or (registered is not None and registered.strict)
            )
            if not judged and not _excused(history.world, earlier, later, rules):
                yield _finding(history, earlier, later, "the message", group)


def _pairs(runs: Sequence[Run], *, same_worker: bool) -> Iterator[tuple[Run, Run]]:
    """Yield the pairs of runs that overlap in time. ``runs`` are in the order of their starts."""
    under_way: list[Run] = []
    for run in runs:
        if under_way:
            under_way = [earlier for earlier in under_way if earlier.end > run.at]
            for earlier in under_way:
                if same_worker or earlier.started.worker != run.started.worker:
                    yield earlier, run
        under_way.append(run)


def _excused(world: World, earlier: Run, later: Run, rules: Rules) -> bool:
    first, slack = earlier.started, rules.slack_ns
    if earlier.finished is None and earlier.end <= later.at + slack:
        return True  # Its worker was killed, and the history noted the kill late.
    return (
        world.shaken(first.worker, earlier.lease, first.at - slack, later.at)
        or started_late(world, later, rules)
    )  # fmt: skip


def _finding(history: History, earlier: Run, later: Run, what: str, group: str) -> Finding:
    one, other = earlier.started, later.started
    text = (
        f"{what} in group {group!r} was under way twice at once: {one.message} in {one.worker!r} had not ended when"
        f" {other.message} started in {other.worker!r}"
    )
    names = dict.fromkeys([one.message, other.message])
    return Finding(other.message, text, tuple(history.stories[name] for name in names))
