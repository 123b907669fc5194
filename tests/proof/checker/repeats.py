"""Rule ``again``: the queue does not deliver a finished message to the same group again."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .excuses import answer_may_be_lost, started_late
from .index import History
from .stories import Run, Story


def again(history: History, rules: Rules) -> Iterator[Finding]:
    """After a successful or rejected run, or a dead letter, the group does not receive the message again.

    The queue redelivers only unanswered messages. A repeat is excused if the queue may have lost the answer of the
    first run: its worker was killed before it answered, or had lost the lease. A repeat is also excused if the later
    run's worker stalled between claim and start. After a dead letter, only this second excuse counts. The database sets
    the time of a dead letter, so the rule allows the slack.
    """
    for story in history.stories.values():
        if len(story.runs) > 1 or story.others:
            yield from _of(history, story, rules)


def _of(history: History, story: Story, rules: Rules) -> Iterator[Finding]:
    world = history.world
    letters = {letter.group: letter.at for letter in story.dead}
    over: dict[tuple[str, int], list[Run]] = {}
    for run in story.runs:
        group, place = run.started.group, (run.started.group, run.started.offset)
        before = next((one for one in over.get(place, ()) if _is_answered(history, one, run, rules)), None)
        if before and not started_late(world, run, rules):
            text = f"given to group {group!r} again, though a run of it was {before.outcome} before"
            yield Finding(story.message, text, (story,))
        elif letters.get(group, run.at) + rules.slack_ns < run.at and not started_late(world, run, rules):
            yield Finding(story.message, f"given to group {group!r} after its dead letter", (story,))
        if run.outcome in ("done", "rejected"):
            over.setdefault(place, []).append(run)


def _is_answered(history: History, before: Run, run: Run, rules: Rules) -> bool:
    return before.end < run.at and not answer_may_be_lost(history.world, before, rules)
