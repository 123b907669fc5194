"""``manage.py mqueue``: status, top, topics and groups."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_mqueue import OutgoingMessage, Subscription, pause, publish, publish_many, resume, subscribe
from django_mqueue.models import Message
from tests.factories import DeadLetterFactory
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each
from tests.own_server import OwnServer
from tests.support.processes import database_ms
from tests.support.subscribers import QUICK, poll_until

from .conftest import Run

pytestmark = pytest.mark.django_db(transaction=True)
Json = Callable[..., dict[str, Any]]


def by(rows: list[dict[str, Any]], *names: str) -> dict[Any, dict[str, Any]]:
    """Return the rows by the values of these columns."""
    return {tuple(row[name] for name in names): row for row in rows}


@override_settings(MQUEUE=QUICK)
def test_status_shows_topics_groups_pauses_and_alarms(mqueue: Run, mqueue_json: Json) -> None:
    one_of_each()
    publish("audit", 1)
    pause(TOPIC, "stock", by="alice", why="the warehouse counts")
    document = mqueue_json("status")
    topics, groups = by(document["topics"], "topic"), by(document["groups"], "topic", "group")
    assert set(topics) == {("audit",), (TOPIC,)}
    assert (topics["audit",]["groups"], topics[TOPIC,]["groups"]) == (0, 2)
    assert topics[TOPIC,]["published_a_minute"] > 0
    billing = groups[TOPIC, GROUP]
    counted = {
        name: billing[name] for name in ("lag", "pending", "in_flight", "waiting", "scheduled", "dead")
    }
    assert counted == {"lag": 3, "pending": 1, "in_flight": 1, "waiting": 1, "scheduled": 1, "dead": 1}
    assert billing["finished_a_minute"] > 0
    assert groups[TOPIC, "stock"]["paused"] is True
    (paused,) = document["paused"]
    assert (paused["group"], paused["by"], paused["why"]) == ("stock", "alice", "the warehouse counts")
    alarms = [(one["level"], one["topic"], one["group"]) for one in document["alarms"]]
    assert ("alarm", "audit", "") in alarms
    assert ("alarm", TOPIC, "stock") in alarms
    text = mqueue("status")
    assert "the warehouse counts" in text
    assert "Paused, and messages wait" in text
    assert set(by(mqueue_json("status", "audit")["topics"], "topic")) == {("audit",)}


def test_the_command_prints_one_language(mqueue: Run) -> None:
    """Alarms are translated on the pages of the admin. Monitoring that reads the command's output needs one text."""
    publish("audit", 1)
    with translation.override("de"):
        assert "none of its messages are ever deleted" in " ".join(mqueue("status").split())


def test_a_pause_that_was_ended_is_not_shown(mqueue_json: Json) -> None:
    subscribe(TOPIC, GROUP)
    pause(TOPIC, by="alice")
    assert [one["by"] for one in mqueue_json("status")["paused"]] == ["alice"]
    resume(TOPIC, GROUP)
    assert mqueue_json("status")["paused"] == []


def test_dead_letter_topics_are_shown_only_if_groups_consume_them(mqueue_json: Json) -> None:
    one_of_each()
    assert set(by(mqueue_json("status", "--no-rates")["topics"], "topic")) == {(TOPIC,)}
    subscribe(f"{TOPIC}_dlq", "triage")
    assert set(by(mqueue_json("status", "--no-rates")["topics"], "topic")) == {(TOPIC,), (f"{TOPIC}_dlq",)}


@pytest.mark.parametrize(
    ("option", "reasons"),
    [
        (
            ("--fail-if-older-than", "0"),
            ["group billing: its oldest open message is", "group stock: its oldest open"],
        ),
        (("--fail-if-older-than", "1h"), []),
        (("--fail-if-more-than", "4"), ["group stock: its lag is 5, which is over 4"]),
        (("--fail-if-more-than", "5"), []),
        (("--fail-if-dead", "1"), ["it has 1 dead letters"]),
        (("--fail-if-dead", "2"), []),
        (("--fail-on-alarm",), ["group stock: No subscriber is alive, and messages wait"]),
    ],
)
def test_monitoring_gets_one_line_for_each_reason(
    mqueue: Run, option: tuple[str, ...], reasons: list[str]
) -> None:
    one_of_each()
    if not reasons:
        assert "Topics" in mqueue("status", "--no-rates", *option)
        return
    out = io.StringIO()
    with pytest.raises(CommandError) as refused:
        call_command("mqueue", "status", "--no-rates", *option, stdout=out)
    lines = str(refused.value).splitlines()
    assert len(lines) == len(reasons)
    for line, reason in zip(lines, reasons, strict=True):
        assert line.startswith(f"{TOPIC}: ")
        assert reason in line
    assert "Groups" in out.getvalue(), "the output is printed before the reasons"


def test_json_contains_the_reasons_also(mqueue: Run) -> None:
    publish("audit", 1)
    out = io.StringIO()
    with pytest.raises(CommandError, match=r"^audit: No group"):
        call_command("mqueue", "status", "--json", "--fail-on-alarm", stdout=out)
    assert '"problems": [' in out.getvalue()


def test_lag_is_counted_up_to_the_limit_of_the_option(mqueue_json: Json, mqueue: Run) -> None:
    """By default, messages are counted up to a number that suits the number of groups."""
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(1_050)])
    (group,) = mqueue_json("status", "--no-rates")["groups"]
    assert group["lag"] == {"value": 1_000, "how": "at_least"}
    mqueue("status", "--no-rates", "--fail-if-more-than", "1050")
    with pytest.raises(CommandError, match="its lag is 1,050, which is over 1049"):
        mqueue("status", "--no-rates", "--fail-if-more-than", "1049")
    with pytest.raises(CommandError, match="must be below 10000, not 20000"):
        mqueue("status", "--fail-if-more-than", "20000")


def test_dead_letters_are_counted_up_to_the_limit_of_the_option(mqueue_json: Json, mqueue: Run) -> None:
    """With many topics, dead letters are counted up to 1,000 by default."""
    for number in range(25):
        subscribe(f"topic-{number}", GROUP)
    subscribe(TOPIC, GROUP)
    rows = [DeadLetterFactory.build(topic=f"{TOPIC}_dlq", message_id=f"{n}:billing") for n in range(1_050)]
    Message.objects.bulk_create(rows)
    dead = {row["topic"]: row["dead"] for row in mqueue_json("status", "--no-rates")["topics"]}
    assert dead[TOPIC] == {"value": 1_000, "how": "at_least"}
    mqueue("status", "--no-rates", "--fail-if-dead", "1051")
    with pytest.raises(CommandError, match="it has 1,050 dead letters, which is not below 1050"):
        mqueue("status", "--no-rates", "--fail-if-dead", "1050")
    with pytest.raises(CommandError, match="must be below 10000, not 20000"):
        mqueue("status", "--fail-if-dead", "20000")


def test_json_is_printed_also_if_the_verb_is_refused(failing: Callable[..., Any]) -> None:
    document, reason = failing("groups", "odrers")
    assert document == {"problems": [reason]}
    document, reason = failing("status", "--database", "nosuch")
    assert document == {"problems": [reason]}
    assert reason.startswith("--database 'nosuch' is no entry of DATABASES: default")


def test_dead_letters_that_a_group_consumes_are_no_alarm(mqueue: Run) -> None:
    with Subscription(TOPIC, GROUP) as subscription:
        publish(TOPIC, 1)
        poll_until(subscription, 1)[0].reject("no")
    Message.objects.filter(topic=f"{TOPIC}_dlq").update(published_at=database_ms() - 30 * 86_400_000)
    with Subscription(f"{TOPIC}_dlq", "alarm") as subscription:
        poll_until(subscription, 1)[0].ack()
    assert "Deletion is late" not in mqueue("status", "--no-rates", "--fail-on-alarm")


@pytest.mark.parametrize("others", [0, 3])
def test_a_lag_over_many_keys_of_a_group_that_has_never_run(mqueue: Run, others: int) -> None:
    """Not all partitions are read, but enough of the newest messages."""
    for number in range(1 + others):
        subscribe(TOPIC, f"group-{number}")
    publish_many(TOPIC, [OutgoingMessage(n, key=f"key-{n}") for n in range(1_010)])
    with pytest.raises(CommandError, match=r"group group-0: its lag is 1,001\+"):
        mqueue("status", TOPIC, "--no-rates", "--fail-if-more-than", "1000")


def test_an_unknown_topic_is_a_problem(mqueue: Run) -> None:
    with pytest.raises(CommandError, match="topic 'odrers' is unknown: it has no message and no group"):
        mqueue("status", "odrers")
    with pytest.raises(CommandError, match="topic 'odrers' is unknown"):
        mqueue("groups", "odrers")


@override_settings(MQUEUE=QUICK)
def test_more_groups_than_one_call_counts(mqueue_json: Json) -> None:
    for number in range(130):
        subscribe(TOPIC, f"group-{number:03d}")
    publish(TOPIC, 1)
    groups = mqueue_json("status", "--no-rates")["groups"]
    assert [row["group"] for row in groups] == [f"group-{number:03d}" for number in range(130)]
    assert {row["lag"] for row in groups} == {1}
    (topic,) = mqueue_json("status", "--no-rates")["topics"]
    assert topic["groups"] == 130


@pytest.mark.parametrize("verb", [("status",), ("topics",), ("groups", TOPIC), ("leases", TOPIC, GROUP)])
def test_statements_do_not_grow_with_partitions(mqueue_json: Json, verb: tuple[str, ...]) -> None:
    def cost() -> int:
        mqueue_json(*verb)
        with CaptureQueriesContext(connection) as captured:
            mqueue_json(*verb)
        return len(captured)

    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, [OutgoingMessage(n, key=f"key-{n}") for n in range(3)])
    few = cost()
    publish_many(TOPIC, [OutgoingMessage(n, key=f"more-{n}") for n in range(190)])
    assert cost() <= few


def test_topics_are_listed_page_by_page(mqueue: Run, mqueue_json: Json) -> None:
    one_of_each()
    for name in ("audit", "mails"):
        publish(name, 1)
    first = mqueue_json("topics", "--limit", 2)
    assert ([row["topic"] for row in first["topics"]], first["next"]) == (["audit", "mails"], "mails")
    last = mqueue_json("topics", "--after", "mails")
    assert last["next"] is None
    (row,) = last["topics"]
    assert (row["topic"], row["groups"], row["kept"], row["dead"], row["retention"]) == (TOPIC, 2, 5, 1, 3600)
    assert [row["topic"] for row in mqueue_json("topics", "--containing", "a")["topics"]] == [
        "audit",
        "mails",
    ]
    assert "--after=mails" in mqueue("topics", "--limit", 2)


def test_topics_past_retention_name_what_deletion_waits_for(mqueue_json: Json) -> None:
    subscribe(TOPIC, GROUP)
    publish(TOPIC, 1)
    Message.objects.update(published_at=1)
    (blocker,) = mqueue_json("topics")["retention_blockers"]
    assert blocker["text"].startswith("Deletion waits for group billing, which has no live subscriber")
    assert (blocker["topic"], blocker["reason"]) == (TOPIC, "no_worker")


def test_groups_lists_subscribers_and_blockers_in_words(mqueue: Run, mqueue_json: Json) -> None:
    one_of_each()
    document = mqueue_json("groups", TOPIC)
    assert [row["group"] for row in document["groups"]] == [GROUP, "stock"]
    (member,) = document["subscribers"]
    assert (member["subscriber"], member["group"], member["in_flight"]) == ("worker-1", GROUP, 1)
    (blocker,) = document["retention_blockers"]
    assert (blocker["reason"], blocker["text"]) == ("retention", "Kept until the retention is over")
    assert "Kept until the retention is over" in mqueue("groups", TOPIC)


def test_top_prints_plain_frames_without_a_terminal(mqueue: Run) -> None:
    publish("audit", 1)
    out = mqueue("top", "--interval", "0.01", "--count", 2)
    assert len(re.findall(r"^At \d\d:\d\d:\d\d UTC", out, re.MULTILINE)) == 2
    assert out.count("audit") >= 2
    with pytest.raises(CommandError, match="use mqueue status --json"):
        mqueue("top", "--json")


class Screen(io.StringIO):
    """A stream that reacts to each frame."""

    def __init__(self, react: Callable[[str], None]) -> None:
        super().__init__()
        self.react = react

    def write(self, text: str) -> int:
        self.react(text)
        return super().write(text)


def test_top_survives_a_database_that_goes_away(own_server: OwnServer) -> None:
    """It says since when, keeps the last figures, and says one line when the database is back. Ctrl-C ends it."""
    steps: list[str] = []

    def react(frame: str) -> None:
        if not steps and "audit" in frame:
            own_server.kill()
            steps.append("killed")
        elif steps == ["killed"] and "has not answered since" in frame:
            assert "audit" in frame, "the last figures stay"
            own_server.start()
            steps.append("started")
        elif steps[1:] == ["started"] and "answers again" in frame:
            assert frame.startswith("The database answers again.")
            steps.append("back")
        elif steps[2:] == ["back"] and frame.strip():
            assert frame.startswith("At "), "the line is printed once"
            raise KeyboardInterrupt

    publish("audit", 1, using="own")
    call_command("mqueue", "top", "--interval", "0.05", "--database", "own", stdout=Screen(react))
    assert steps == ["killed", "started", "back"]
    connections["own"].close()


def test_a_dead_letter_topic_without_a_group_is_known(mqueue_json: Json) -> None:
    with Subscription("orders", "billing") as subscription:
        publish("orders", 1)
        poll_until(subscription, 1)[0].reject("no")
    assert [row["topic"] for row in mqueue_json("status", "orders_dlq")["topics"]] == ["orders_dlq"]
