"""Rows that the pages of dead letters read, with 100,000 dead letters and 2,000 topics."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_mqueue import subscribe
from django_mqueue.browse import bulk_redrive, dead_letters
from django_mqueue.models import Message
from tests.support.many import NUMBERS, insert_dead_letters

from .dead_letters import TOPIC
from .looking import html_of, text
from .operating import hidden, staff, url_of
from .test_cost import reads

pytestmark = pytest.mark.django_db(transaction=True, reset_sequences=True)

LETTERS, TOPICS = 100_000, 2_000
LOOKED = 3 * dead_letters.SEARCH_ROWS + 3_000
"""Maximum for a page that reads ``LOOK_MOST`` dead letters, plus one more step.

Each dead letter counts three times: in the index, in its step's list, and as a row. A slow machine reads less, because
the time limit of the page ends the search first. A list searches twice: for its rows, and for their total.
"""
SOUGHT = 35_000
"""Maximum for a search by time.

It bisects the offsets from 0 to the last, and reads about 4,000 entries each time. The number of bisections depends on
the last offset, so this test always starts at offset 1.
"""
COUNTED = 4 * LETTERS + 3_000
"""Maximum for a list that counts by an index, with growing limits until it is exact or takes too long."""
PAGES: list[tuple[str, dict[str, str], int]] = [
    ("deadletter_changelist", {}, 3 * TOPICS + 5_000),
    ("deadletter_changelist", {"after": "t1500"}, 3 * TOPICS + 5_000),
    ("deadletter_errors", {"topic": TOPIC}, LOOKED),
    ("deadletter_list", {"topic": TOPIC}, COUNTED),
    ("deadletter_list", {"topic": TOPIC, "group": "billing"}, COUNTED),
    ("deadletter_list", {"topic": TOPIC, "id": "30777"}, 1_000),
    ("deadletter_list", {"topic": TOPIC, "key": "k7"}, COUNTED // 10),
    ("deadletter_list", {"topic": TOPIC, "line": "nothing"}, 2 * LOOKED),
    ("deadletter_list", {"topic": TOPIC, "path": "nothing", "value": "1"}, 2 * LOOKED + dead_letters.SEARCH_ROWS),
    ("deadletter_list", {"topic": TOPIC, "after": "2026-01-01T00:00"}, SOUGHT),
    ("redrive_matching", {"topic": TOPIC}, 2 * dead_letters.COUNT_MOST + 1_000),
    ("redrive_matching", {"topic": TOPIC, "line": "ValueError: no"}, LOOKED),
    ("purge_matching", {"topic": TOPIC, "group": "billing"}, 2 * dead_letters.COUNT_MOST + 1_000),
]  # fmt: skip


def fill_topics() -> None:
    """Insert one dead letter for each of many topics."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
            " created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group,"
            f" original_id) SELECT CONCAT('t', n, '_dlq'), 'k', '1:billing', '', '1', '{{}}', 1, 1, 1, 1, 1,"
            f" 'E: x', CONCAT('t', n), 'billing', 'i' FROM {NUMBERS} WHERE n < {TOPICS}"
        )
        cursor.execute("ANALYZE TABLE queue_messages")
        cursor.fetchall()


def test_a_hundred_thousand_letters() -> None:
    """Each page stays below its maximum and uses no OFFSET. A step redrives at most the limit of a step."""
    subscribe(TOPIC, "billing")
    insert_dead_letters(TOPIC, "billing", LETTERS)
    fill_topics()
    client = staff("view_deadletter", "redrive_deadletter", "purge_deadletter")
    html_of(client, url_of("deadletter_changelist"))
    read = {}
    with CaptureQueriesContext(connection) as captured:
        for page, query, most in PAGES:
            before = reads()
            html = html_of(client, url_of(page), query)
            read[f"{page} {query}"] = (reads() - before, most)
            assert "mqueue-main" in html
    assert {name: one for name, one in read.items() if one[0] > one[1]} == {}
    assert not [query["sql"] for query in captured.captured_queries if " OFFSET " in query["sql"]]
    html = html_of(client, url_of("deadletter_errors"), {"topic": TOPIC})
    assert "there are more" in text(html)
    html = html_of(client, url_of("redrive_matching"), {"topic": TOPIC})
    assert "Redrive 20,000+ dead letters?" in text(html)
    a_few_steps(client, html)


def a_few_steps(client: Client, html: str) -> None:
    left: list[int] = []
    told: Any = None
    for _ in range(3):
        told = client.post(url_of("redrive_matching"), hidden(html))
        html = told.content.decode()
        left.append(Message.objects.filter(topic=f"{TOPIC}_dlq").count())
    assert LETTERS - 3 * (bulk_redrive.STEP_DEAD_LETTERS + 500) <= left[-1] < left[0] < LETTERS
    assert f"{LETTERS - left[-1]:,} dead letters were redriven so far" in text(html)
    assert '<progress max="' in html
