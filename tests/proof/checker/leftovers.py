"""Rule ``left``: no row is left after the run."""

from __future__ import annotations

from collections.abc import Iterator

from .breaches import Finding, Rules
from .index import History


def left(history: History, rules: Rules) -> Iterator[Finding]:
    """After a run that finished all messages, the log and the delivery state are empty. Nothing excuses a row."""
    for event in history.left:
        story = history.stories.get(event.message)
        text = f"still in {event.table} when all was over (topic {event.topic!r})"
        yield Finding(event.message or event.table, text, (story,) if story else (), (event,))
