"""Rule ``lost``: every committed message is done, or dead-lettered, for every group."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .index import History
from .world import FOREVER


def lost(history: History, rules: Rules) -> Iterator[Finding]:
    """A message whose transaction committed has, for each group of its topic, a run that was done or a dead letter.

    Of a transaction with an unknown end all messages exist or none: if any of them was ever delivered,
    dead-lettered or deleted, all of them must be done. Not asked of what the queue ignored as a duplicate.

    A run that ended with "done" counts even if its answer was refused: the handler has seen the message.
    """
    for story in history.stories.values():
        sent = story.sent
        if story.fate != "committed" or sent is None:
            continue
        for group in history.groups.get(sent.topic, ()):
            if story.over_at(group.group) == FOREVER:
                runs = len(story.runs_of(group.group))
                how = f"{runs} runs, none of them done" if runs else "it was never delivered"
                text = f"lost for group {group.group!r}: no run was done and there is no dead letter ({how})"
                if all(history.outcome(s.sent.transaction) != "committed" for s in story.sendings):
                    text += "; its transaction has committed, since something of it was seen"
                yield Finding(story.message, text, (story,))
