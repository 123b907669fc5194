"""Rule ``deleted early``: the log forgets a message when every group is done with it."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .index import History


def deleted_early(history: History, rules: Rules) -> Iterator[Finding]:
    """When a message is deleted, each group that is registered for its topic has a run that was done or a dead letter.

    The moment of a deletion is the database's, so what was done within the slack after it counts. (A message that is
    never done is the rule ``lost``'s as well.)
    """
    for story in history.stories.values():
        for gone in story.deleted:
            for group in history.groups.get(gone.topic, ()):
                if story.over_at(group.group) > gone.at + rules.slack_ns:
                    text = f"deleted before group {group.group!r} was done with it"
                    yield Finding(story.message, text, (story,))
