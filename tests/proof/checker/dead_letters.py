"""Rule ``dead letter``: a message is given up once, for a reason, and what it says of its failures is true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..history import DeadLettered
from .breaches import Finding, Rules
from .excuses import answer_may_be_lost
from .index import History
from .stories import Run, Story
from .world import FOREVER


def wrong_letters(history: History, rules: Rules) -> Iterator[Finding]:
    """One dead letter at most for a message and group (for each time that it was stored), with a reason.

    *The reason*: a run that was rejected, or at least ``max_attempts`` failures; never after a run that was done,
    unless that answer may have been lost.

    *The failures* that it tells of are at most

    - the runs that failed or were rejected;
    - those that nobody answered (the worker died, or had lost the lease) and that may have been alone in their
      process: when several run, nobody knows which one killed the worker, so none of them is to blame. A run
      beside which another one started only after its worker may have lost the lease counts as alone;
    - the attempts that nobody saw (``attempts`` judges whether there may be any), and deaths of workers that ran
      nothing, since the last run: a message may have been handed over and not have come to its start.

    So a message whose runs were all done, or died beside others, is not dead-lettered: neighbours of one that kills.
    """
    for story in history.stories.values():
        letters: defaultdict[str, list[DeadLettered]] = defaultdict(list)
        for letter in story.dead if story.others else ():
            letters[letter.group].append(letter)
        for group, ones in letters.items():
            stored = max(sum(sending.ignored is None for sending in story.sendings), 1)
            if len(ones) > stored:
                yield Finding(story.message, f"{len(ones)} dead letters for group {group!r}", (story,))
            for letter in ones[:stored]:
                yield from _of(history, story, letter, rules)


def _of(history: History, story: Story, letter: DeadLettered, rules: Rules) -> Iterator[Finding]:
    by = letter.at + rules.slack_ns
    runs = [run for run in story.runs_of(letter.group) if run.at <= by]
    registered = history.registered.get((letter.topic, letter.group))
    most = registered.max_attempts if registered else 1
    head = f"its dead letter for group {letter.group!r}"
    if letter.failures < most and not any(run.outcome == "rejected" for run in runs):
        text = f"{head} has no reason: {letter.failures} failures of {most}, and it was not rejected"
        yield Finding(story.message, text, (story,))
    possible = sum(_may_have_failed(history, run, rules) for run in runs) + _unseen(history, runs, by, story)
    if letter.failures > possible:
        text = f"{head} tells of {letter.failures} failures, and there were {possible} at most"
        yield Finding(story.message, text, (story,))
    for run in runs:
        done_before = run.outcome == "done" and run.end + rules.slack_ns < letter.at
        if done_before and not answer_may_be_lost(history.world, run, rules):
            yield Finding(story.message, f"{head} came after it was done", (story,))


def _may_have_failed(history: History, run: Run, rules: Rules) -> bool:
    if run.outcome in ("failed", "rejected"):
        return True
    if not answer_may_be_lost(history.world, run, rules):
        return False
    if run.beside == FOREVER:
        return True
    one = run.started
    return run.beside > one.at and history.world.shaken(one.worker, run.lease, one.at, run.beside)


def _unseen(history: History, runs: list[Run], by: int, story: Story) -> int:
    """Deliveries that may have failed and that no handler told of."""
    seen = {run.started.attempt for run in runs}
    since = max((min(run.end, by) for run in runs), default=story.sent.at if story.sent else 0)
    return max(seen, default=0) - len(seen) + history.world.idle_deaths.count(since + 1, by)
