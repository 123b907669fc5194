"""Rule ``attempts``: a message uses an attempt only when a handler receives it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .breaches import Finding, Rules
from .excuses import answer_may_be_lost, started_late
from .index import History
from .stories import Run, Story


def miscounted(history: History, rules: Rules) -> Iterator[Finding]:
    """The attempts of a message in a group are 1, 2, 3 and so on, in the order of the starts.

    After a postponed run, the number stays the same. It may be one higher if the queue may have lost the postponement:
    the worker died before it answered, or had lost the lease. Such a run counts as an attempt.

    *A gap* may be as large as the number of deaths since the last start (or since the message was sent). Each death may
    have stopped a worker between the delivery mark and the start of the handler. Deaths are kills and stops of workers,
    thefts of leases, and times without a server. A broken connection is no death: the queue then returns the claim
    without a trace.

    *A lower number* is allowed if the worker stalled between claim and start. Another worker has received the message
    meanwhile. Such a start does not change the next expected number.
    """
    for story in history.stories.values():
        lines: defaultdict[tuple[str, int], list[Run]] = defaultdict(list)
        for run in story.runs:
            lines[run.started.group, run.started.offset].append(run)
        for runs in lines.values():
            yield from _of(history, story, runs, rules)


def _of(history: History, story: Story, runs: list[Run], rules: Rules) -> Iterator[Finding]:
    world, last = history.world, None
    for run in runs:
        attempt = run.started.attempt
        low, high, since = _expected(history, story, last, run, rules)
        if attempt < low and started_late(world, run, rules):
            continue
        missing = attempt - high
        if attempt < low:
            yield _finding(story, run, f"is {attempt}; the attempts before it were counted, so it is {low}")
        elif missing > 0:
            deaths = world.deaths.count(since - rules.slack_ns, run.at + rules.slack_ns)
            if missing > deaths:
                yield _finding(
                    story, run, f"is {attempt}, not {high}, with {deaths} deaths since the last start"
                )
        last = run


def _expected(
    history: History, story: Story, last: Run | None, run: Run, rules: Rules
) -> tuple[int, int, int]:
    """Return (least attempt, highest attempt without a death, start of the time in which deaths count)."""
    if last is None:
        return 1, 1, story.sent.at if story.sent else run.at
    before = last.started.attempt
    if last.outcome != "postponed":
        return before + 1, before + 1, last.at
    lost = last.end > run.at or answer_may_be_lost(history.world, last, rules)
    return before, before + lost, last.at


def _finding(story: Story, run: Run, text: str) -> Finding:
    return Finding(story.message, f"an attempt of group {run.started.group!r} {text}", (story,))
