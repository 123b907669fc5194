"""Rule ``attempts``: only a message that was handed to a handler has used an attempt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .breaches import Finding, Rules
from .excuses import answer_may_be_lost, started_late
from .index import History
from .stories import Run, Story


def miscounted(history: History, rules: Rules) -> Iterator[Finding]:
    """The attempts of a message in a group, in the order of the starts: 1, then one more each time.

    After a run that was postponed it is the same number again; one more if that answer may have been lost (its worker
    died before it gave it, or had lost the lease), for then the run counts like any other.

    *A gap* is allowed by as many numbers as there were deaths since the last start (or since the sending): each may
    have hit a worker after the delivery was marked and before the handler had it. That is a kill of a worker, a
    stop, a theft of a lease, or a time without server. A broken connection is none: what was claimed then
    is given back without a trace.

    *A lower number* is allowed for a worker that was stalled between claim and start, for another one has had
    the message meanwhile. Such a start does not change what comes next.
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
    """(least, most without a death, since when deaths count)."""
    if last is None:
        return 1, 1, story.sent.at if story.sent else run.at
    before = last.started.attempt
    if last.outcome != "postponed":
        return before + 1, before + 1, last.at
    lost = last.end > run.at or answer_may_be_lost(history.world, last, rules)
    return before, before + lost, last.at


def _finding(story: Story, run: Run, text: str) -> Finding:
    return Finding(story.message, f"an attempt of group {run.started.group!r} {text}", (story,))
