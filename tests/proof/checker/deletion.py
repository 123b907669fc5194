"""Rule ``deleted early``: the log deletes a message only after each group has finished it."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .index import History
from .stories import Story


def deleted_early(history: History, rules: Rules) -> Iterator[Finding]:
    """When a message is deleted, each registered group of its topic has a successful run or a dead letter for it.

    The database sets the time of a deletion. So a run may also end within the slack after the deletion. (Rule ``lost``
    also reports a message that no run finished.)

    An atomic handler commits its effect with the ack, and notes its end after that. If its worker was stopped during
    the run, the commit may have been before the stop.
    """
    for story in history.stories.values():
        for gone in story.deleted:
            for group in history.groups.get(gone.topic, ()):
                late = story.over_at(group.group) > gone.at + rules.slack_ns
                if late and not (group.atomic and _was_stopped(history, story, group.group, gone.at)):
                    text = f"deleted before group {group.group!r} was done with it"
                    yield Finding(story.message, text, (story,))


def _was_stopped(history: History, story: Story, group: str, at: int) -> bool:
    """Return True if a worker was stopped during a successful run of the group that began before ``at``."""
    return any(
        run.outcome == "done" and run.at < at and history.world.stopped(run.started.worker, run.at, run.end)
        for run in story.runs_of(group)
    )
