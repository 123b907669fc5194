"""Rule ``dead letter``: a message is dead-lettered at most once, for a reason, and its failure count is true."""

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
    """A message has at most one dead letter per group (for each time that it was stored), and the letter has a reason.

    *The reason* is a rejected run, or at least ``max_attempts`` failures. A message is never dead-lettered after a
    successful run, unless the queue may have lost that run's ack.

    *The failures* in the dead letter are at most the sum of

    - the runs that failed or were rejected;
    - the runs without an answer (the worker died, or had lost the lease) that may have run alone in their process.
      When several messages run, the cause of a death is unknown, so the death counts against none of them. A run also
      counts as alone if another message started only after the worker may have lost the lease;
    - the attempts without a start (rule ``attempts`` checks whether they are possible), and the deaths of idle workers
      since the last run. In both cases, a worker may have claimed the message and died before the handler started.

    So a message is not dead-lettered if each of its runs was done, or died while other messages ran in the same
    process.
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
    """Count the deliveries that may have failed before a handler started."""
    seen = {run.started.attempt for run in runs}
    since = max((min(run.end, by) for run in runs), default=story.sent.at if story.sent else 0)
    return max(seen, default=0) - len(seen) + history.world.idle_deaths.count(since + 1, by)
