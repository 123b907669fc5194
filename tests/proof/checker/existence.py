"""Rules ``history``, ``ghost`` and ``twice``: a message exists exactly if its transaction commits, and exists once."""

from __future__ import annotations

from collections.abc import Iterator

from ..history import DeadLettered, Deleted, Finished, Ignored
from .breaches import Finding, Rules
from .index import History
from .stories import Story

ROUNDING = 2_000_000
"""The database counts whole milliseconds, on a clock that may drift."""


def contradictions(history: History, rules: Rules) -> Iterator[Finding]:
    """The history is consistent. Otherwise the other rules give wrong results.

    A transaction ends once. An answer belongs to a run. An ignored message was sent. Nothing excuses a contradiction: a
    process writes each event before it continues, and a kill loses no written event.
    """
    for transaction, closed in history.closed.items():
        if len(closed) > 1:
            yield Finding(f"transaction {transaction}", f"ended {len(closed)} times", (), tuple(closed))
    for story in history.stories.values():
        for other in story.others:
            if type(other) is Finished:
                text = f"a run of it finished in {other.worker!r} that had not started, or finished twice"
                yield Finding(story.message, text, (story,))
            elif type(other) is Ignored:
                yield Finding(story.message, "ignored, and not sent before that", (story,))


def ghosts(history: History, rules: Rules) -> Iterator[Finding]:
    """No part of the queue shows a message that does not exist.

    Three kinds of messages are never delivered, dead-lettered or deleted: unsent messages, messages of transactions
    that rolled back, and duplicates that the queue ignored. An existing message is not delivered before its
    transaction's last message was sent, because the commit follows later. A scheduled message is not delivered before
    it is due. It arrives under the topic and key of its sending, and only in registered groups. The times of deletions
    and dead letters come from the database, so this rule does not compare them.
    """
    last_sent = {name: _last_sent(stories, name) for name, stories in history.transactions.items()}
    for story in history.stories.values():
        if story.fate == "never" and story.is_seen():
            yield Finding(story.message, f"{_seen(story)}, but {_why_not(history, story)}", (story,))
            continue
        sent = story.sent
        if sent is None:
            continue
        existed = min(last_sent[s.sent.transaction] for s in story.sendings)
        due = min(s.sent.at + round(s.sent.delay * 1e9) for s in story.sendings)
        for run in story.runs:
            one = run.started
            if one.at < existed:
                yield Finding(story.message, "delivered before its transaction can have committed", (story,))
            if one.at < due - ROUNDING:
                yield Finding(story.message, "delivered before it was due", (story,))
            if (one.topic, one.key) != (sent.topic, sent.key):
                text = (
                    f"delivered from {one.topic!r} with key {one.key!r}, not {sent.topic!r} and {sent.key!r}"
                )
                yield Finding(story.message, text, (story,))
            elif (one.topic, one.group) not in history.registered:
                text = f"delivered to group {one.group!r}, which is not registered for {one.topic!r}"
                yield Finding(story.message, text, (story,))


def twice(history: History, rules: Rules) -> Iterator[Finding]:
    """A message has at most one offset for each time that it was stored.

    A publisher that does not know the result of its commit may send the message again, with the same id. The queue
    ignores the second message, unless the first was rolled back, or was done and deleted.
    """
    for story in history.stories.values():
        offsets = {run.started.offset for run in story.runs} | {gone.offset for gone in story.deleted}
        if len(offsets) > 1:
            stored = sum(
                s.ignored is None and history.outcome(s.sent.transaction) != "rolled back"
                for s in story.sendings
            )
            if len(offsets) > stored:
                text = f"stored {len(offsets)} times, at {sorted(offsets)}; sent {stored} times"
                yield Finding(story.message, text, (story,))


def _last_sent(stories: list[Story], transaction: str) -> int:
    return max(s.sent.at for story in stories for s in story.sendings if s.sent.transaction == transaction)


def _seen(story: Story) -> str:
    what = []
    if story.runs:
        what.append(f"delivered {len(story.runs)} times")
    if any(type(other) is DeadLettered for other in story.others):
        what.append("dead-lettered")
    if any(type(other) is Deleted for other in story.others):
        what.append("deleted")
    return " and ".join(what)


def _why_not(history: History, story: Story) -> str:
    if not story.sendings:
        return "it was never sent"
    ignored = any(sending.ignored for sending in story.sendings)
    return "the queue had ignored it as a duplicate" if ignored else "its transaction rolled back"
