"""Execute requests among many others, so that the plans of their statements can be tested."""

from __future__ import annotations

from django.db.backends.utils import CursorWrapper

from django_mqueue import OutgoingMessage
from django_mqueue.policy.encoding import encode
from django_mqueue.protocol.retention.expired_replies import ExpiredReplies
from django_mqueue.service.requesting import PendingRequest
from django_mqueue.store import replies
from django_mqueue.store.connection import session
from tests.support.many import NUMBERS

from .full_tables import in_chunks

DEAD = 200


def open_many() -> None:
    """Insert the boxes of ten thousand requesters. Most of them wait, and some are dead."""
    in_chunks(
        "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
        " created_at, published_at) SELECT 'full_replies', ' replies', CONCAT('box-', n), '', 'null', '{}',"
        " IF(n < %s, 1, 1 << 45), 1, 1"
        f" FROM (SELECT %s AS base, %s AS upto) x, {NUMBERS} WHERE n >= x.base AND n < x.upto ORDER BY n",
        [DEAD],
        0,
        10_000,
    )


def ask_and_answer() -> None:
    """Execute all statements of requests: ask, look, answer, abandon, take the reply, and sweep leftovers."""
    questions = [PendingRequest("full", OutgoingMessage("asked", key="k1"), 30, None) for _ in range(2)]
    for question in questions:
        question.send()
        assert question.poll() is None

    def answer(cursor: CursorWrapper) -> None:
        box = questions[0]._box
        assert box is not None
        assert replies.lock_open(cursor, box)
        replies.fill(cursor, box, encode("answer", "", {}, 100))
        assert not replies.is_last_replier(cursor, box.offset + 1, "ahead")

    session.run("default", answer)
    assert questions[0].poll() is not None
    questions[1].abandon()
    # The workers may have deleted them before.
    assert ExpiredReplies("default", "full").delete_page() in (0, DEAD)
