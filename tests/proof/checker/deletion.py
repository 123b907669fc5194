"""Rule ``deleted early``: the log deletes a message only after each group has finished it."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .index import History


def deleted_early(history: History, rules: Rules) -> Iterator[Finding]:
    """When a message is deleted, each registered group of its topic has a successful run or a dead letter for it.

    The database sets the time of a deletion. So a run may also end within the slack after the deletion. (Rule ``lost``
    also reports a message that no run finished.)
    """
    for story in history.stories.values():
        for gone in story.deleted:
            for group in history.groups.get(gone.topic, ()):
                if story.over_at(group.group) > gone.at + rules.slack_ns:
                    text = f"deleted before group {group.group!r} was done with it"
                    yield Finding(story.message, text, (story,))
