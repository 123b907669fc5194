"""Rule ``again``: what a group is done with does not come again."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .excuses import answer_may_be_lost, started_late
from .index import History
from .stories import Run, Story


def again(history: History, rules: Rules) -> Iterator[Finding]:
    """After a run that was done or rejected, or a dead letter, the group is not given the message again.

    Redelivery is for what was left unanswered. Excused if the answer of that run may have been lost: its worker was
    killed before it could give it, or had lost the lease; or if the later run's worker was stalled between claim and
    start. After a dead letter (whose moment is the database's, so with the slack) only the latter excuses.
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
