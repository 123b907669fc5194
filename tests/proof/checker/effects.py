"""Rule ``effects``: an atomic handler's write exists exactly once per message, or the message has a dead letter."""

from __future__ import annotations

from collections.abc import Iterator

from ..history import Registered
from .breaches import Finding, Rules
from .index import History
from .stories import Story


def not_once(history: History, rules: Rules) -> Iterator[Finding]:
    """Each atomic group has one effect or one dead letter for each time that a message was stored.

    Nothing excuses a second effect. A message has no effect if its transaction did not commit. Faults of workers and
    servers are no excuse, because the effect and the ack are one commit.
    """
    for group in history.registered.values():
        if not group.atomic:
            continue
        for story in history.stories.values():
            if story.sent is not None and story.sent.topic == group.topic:
                yield from _of(history, story, group)


def _of(history: History, story: Story, group: Registered) -> Iterator[Finding]:
    effects = [effect for effect in story.effects if effect.group == group.group]
    head = f"for atomic group {group.group!r}"
    for effect in effects:
        if effect.count > 1:
            yield Finding(story.message, f"{head} it took effect {effect.count} times", (story,))
            return
    letters = sum(letter.group == group.group for letter in story.dead)
    stored = sum(
        s.ignored is None and history.outcome(s.sent.transaction) != "rolled back" for s in story.sendings
    )
    if effects and story.fate == "never":
        yield Finding(
            story.message, f"{head} it took effect, though its transaction did not commit", (story,)
        )
    elif len(effects) + letters > stored:
        text = f"{head} it took effect {len(effects)} times and has {letters} dead letters, but was stored {stored}"
        text += " times"
        yield Finding(story.message, text, (story,))
    elif story.fate == "committed" and not effects and not letters:
        yield Finding(story.message, f"{head} it took no effect, and there is no dead letter", (story,))
