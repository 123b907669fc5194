"""Rule ``lost``: each committed message is done or dead-lettered, for each group."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .index import History
from .world import FOREVER


def lost(history: History, rules: Rules) -> Iterator[Finding]:
    """For each group of its topic, a committed message has a successful run or a dead letter.

    A transaction with an unknown result stored all of its messages or none. If any of them was delivered, dead-lettered
    or deleted, all of them must be done. The rule skips messages that the queue ignored as duplicates.

    A run with the outcome "done" counts even if the queue refused its ack: the handler has processed the message.
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
