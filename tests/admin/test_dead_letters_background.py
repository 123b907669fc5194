"""Long redrives and purges that a worker continues: progress, stop, failure, and the log of actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, PermissionsMixin, User
from django.db import transaction
from django.test import Client, override_settings
from django.utils import timezone

from django_mqueue import OutgoingMessage, Subscription, publish
from django_mqueue.admin.dead_letters import background, handing_over
from django_mqueue.browse import bulk_redrive
from django_mqueue.consumers import ATTEMPTS
from django_mqueue.exceptions import Postpone
from django_mqueue.inspect import topics
from django_mqueue.models import Message
from django_mqueue.policy.dead_letter_filter import DeadLetterQuery
from django_mqueue.policy.names import OPERATIONS_TOPIC
from django_mqueue.service import actions
from django_mqueue.service.bulk_work import GROUP
from django_mqueue.testing import drain
from django_mqueue.workers import registry
from tests.support.running import run
from tests.support.subscribers import QUICK, poll_until
from tests.support.threads import Background

from .dead_letters import DEAD, TOPIC, give_up, given, left, outgoing
from .looking import html_of, listed, text
from .operating import hidden, staff, staff_client, told, url_of, written_down

pytestmark = pytest.mark.django_db(transaction=True)

RIGHTS = ("view_deadletter", "redrive_deadletter", "purge_deadletter")


@pytest.fixture(autouse=True)
def small_steps(small: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A step in the browser takes four dead letters, and a step of a worker takes two."""
    monkeypatch.setattr(background, "AT_ONCE", 2)
    with override_settings(MQUEUE={**QUICK, "RETENTION": 3600}):
        yield


client = staff_client(*RIGHTS)


@contextmanager
def attended() -> Iterator[None]:
    """A live subscriber of the group that does the steps. It receives none of them."""
    with Subscription(OPERATIONS_TOPIC, GROUP):
        yield


def begun(client: Client, page: str = "redrive_matching", **asked: str) -> str:
    """Start an operation while a worker lives. Return the URL of its progress."""
    shown = client.post(url_of(page), {"topic": TOPIC, **asked})
    assert shown.status_code == 200, text(shown.content.decode())
    with attended():
        response: Any = client.post(url_of(page), {**hidden(shown.content.decode()), **asked})
    assert response.status_code == 302
    return str(response.url)


def last() -> str:
    return written_down()[-1][2]


@pytest.mark.parametrize(("page", "verb"), [("redrive_matching", "redriven"), ("purge_matching", "purged")])
def test_a_worker_does_the_rest(client: Client, page: str, verb: str) -> None:
    """The browser does the first step. The page of the progress and the log of actions show the worker's steps."""
    give_up(*outgoing(11))
    url = begun(client, page, typed=TOPIC)
    assert len(left()) == 7
    under_way = f"Under way: 4 dead letters were {verb} so far; 4 were examined: topic orders."
    assert [entry[2] for entry in written_down()] == [under_way]
    html = html_of(client, url)
    assert under_way in text(html)
    assert "No worker is running" in text(html)
    assert '<progress max="11" value="4">' in html
    for other in ("deadletter_list", "deadletter_errors"):
        assert url in html_of(client, url_of(other), {"topic": TOPIC}).replace("&amp;", "&")
    with attended():
        assert "No worker is running" not in text(html_of(client, url))
    steps = drain(OPERATIONS_TOPIC)
    assert len(steps) > 3
    assert left() == []
    assert [entry[2] for entry in written_down()] == [f"11 dead letters were {verb}: topic orders."]
    html = html_of(client, url)
    assert f"11 dead letters were {verb}: topic orders." in text(html)
    assert "<progress" not in html
    assert url not in html_of(client, url_of("deadletter_list"), {"topic": TOPIC})
    if verb == "redriven":
        assert len(given("billing", 11)) == 11


def test_a_step_that_is_interrupted_counts_what_it_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = give_up(*outgoing(5))
    monkeypatch.setattr(bulk_redrive, "STEP", 0.0)
    monkeypatch.setattr(bulk_redrive, "BYTES_PER_STATEMENT", 1)
    position: int | None = 0
    examined = []
    while position is not None:
        found = bulk_redrive.step(
            "default", DeadLetterQuery(TOPIC, DEAD), position, letters[-1].pk, redrives=True, limit=5
        )
        examined.append(found.examined)
        position = found.position
    assert sum(examined) == 5, examined
    assert left() == []


def test_without_a_worker_the_browser_does_all(client: Client) -> None:
    give_up(*outgoing(5))
    response: Any = client.post(url_of("redrive_matching"), {"topic": TOPIC})
    response = client.post(url_of("redrive_matching"), hidden(response.content.decode()))
    assert response.status_code == 200
    response = client.post(url_of("redrive_matching"), hidden(response.content.decode()), follow=True)
    assert told(response) == ["5 dead letters were redriven: topic orders."]
    assert not Message.objects.filter(topic=OPERATIONS_TOPIC).exists()


def test_the_filter_of_the_user_holds_for_the_worker(client: Client) -> None:
    """Also its time, which is in the time zone of the page."""
    give_up(*outgoing(9))
    give_up(*(OutgoingMessage(n, id=f"late-{n}") for n in range(3)), error="KeyError: {n}")
    begun(client, error="ValueError", after="2020-01-01T00:00:00", path="customer.id", value="1")
    drain(OPERATIONS_TOPIC)
    assert last() == (
        "3 dead letters were redriven: topic orders (error ValueError, failed from 2020-01-01 00:00:00 UTC, payload"
        " customer.id = a value)."
    )
    assert len(left()) == 9


def _stopping(client: Client, url: str, stops: list[Any]) -> Callable[..., bulk_redrive.Progress]:
    """Return a ``step`` during which the user stops the operation, once."""
    step = bulk_redrive.step

    def stopped_meanwhile(*arguments: Any, **options: Any) -> bulk_redrive.Progress:
        done = step(*arguments, **options)
        if not stops:
            stops.append(Background(lambda: client.post(url, {"stop": "Stop"}, follow=True)).start().result())
        return done

    return stopped_meanwhile


def test_a_stop_during_a_step_counts_this_step(client: Client) -> None:
    give_up(*outgoing(11))
    url = begun(client)
    stops: list[Any] = []
    with mock.patch.object(bulk_redrive, "step", _stopping(client, url, stops)):
        drain(OPERATIONS_TOPIC)
    assert told(stops[0]) == ["Stopped: 4 dead letters were redriven so far; 4 were examined: topic orders."]
    assert len(left()) == 5
    assert last() == "Stopped: 6 dead letters were redriven so far; 6 were examined: topic orders."
    assert drain(OPERATIONS_TOPIC) == []
    assert actions.recent(TOPIC)[0].details["messages_in_all"] == 6, "the record counts this step, too"
    html = html_of(client, url)
    assert last() in text(html)
    assert 'name="stop"' not in html
    client.post(url, {"stop": "Stop"})
    assert last().startswith("Stopped: 6")


def test_a_stop_before_the_next_step_ends_it(client: Client) -> None:
    give_up(*outgoing(11))
    url = begun(client)
    client.post(url, {"stop": "Stop"})
    assert len(drain(OPERATIONS_TOPIC)) == 1
    assert len(left()) == 7
    assert last() == "Stopped: 4 dead letters were redriven so far; 4 were examined: topic orders."
    assert actions.recent(TOPIC)[0].details["messages_in_all"] == 4, "the record has the total, too"


def test_a_worker_that_dies_before_it_writes_the_log_is_no_stop(client: Client) -> None:
    """The next step takes the entry as it is, and its text has the whole count."""
    give_up(*outgoing(11))
    begun(client)
    write = background._write
    lost: list[int] = []

    def lost_once(*arguments: Any) -> None:
        write(*arguments) if lost else lost.append(1)

    with mock.patch.object(background, "_write", lost_once):
        drain(OPERATIONS_TOPIC)
    assert lost
    assert left() == []
    assert last() == "11 dead letters were redriven: topic orders."


class _Hooks(list[Callable[[], None]]):
    """Replaces ``transaction`` of the module. It keeps the hooks of commits: all of them, or the first."""

    def __init__(self, *, only_first: bool = False) -> None:
        super().__init__()
        self.only_first = only_first

    def on_commit(self, hook: Callable[[], None], using: str) -> None:
        if self and self.only_first:
            transaction.on_commit(hook, using=using)
        else:
            self.append(hook)


def test_each_worker_dies_before_it_writes_the_log(client: Client) -> None:
    """Even the worker that does the last step dies."""
    give_up(*outgoing(11))
    begun(client)
    with mock.patch.object(background, "transaction", _Hooks()):
        drain(OPERATIONS_TOPIC)
    assert left() == []
    assert last() == "11 dead letters were redriven: topic orders."


def test_a_worker_dies_during_a_stop(client: Client) -> None:
    """The text has the count of the step that ran during the stop."""
    give_up(*outgoing(11))
    url = begun(client)
    with (
        mock.patch.object(background, "transaction", _Hooks()),
        mock.patch.object(bulk_redrive, "step", _stopping(client, url, [])),
    ):
        drain(OPERATIONS_TOPIC)
    assert len(left()) == 5
    assert last() == "Stopped: 6 dead letters were redriven so far; 6 were examined: topic orders."


def test_the_message_after_the_last_step(client: Client) -> None:
    """It may still wait, but nothing is under way, and there is nothing to stop."""
    give_up(*outgoing(11))
    url = begun(client)
    with Subscription(OPERATIONS_TOPIC, GROUP) as subscription:
        while last().startswith("Under way"):
            (delivery,) = poll_until(subscription, 1)
            with delivery.atomic():
                background.do_step(delivery, is_last_attempt=False)
    html = html_of(client, url)
    assert last() in text(html)
    assert "<progress" not in html
    assert 'name="stop"' not in html
    assert url not in html_of(client, url_of("deadletter_list"), {"topic": TOPIC})
    client.post(url, {"stop": "Stop"})
    drain(OPERATIONS_TOPIC)
    assert last() == "11 dead letters were redriven: topic orders."


def test_a_worker_writes_the_log_late(client: Client) -> None:
    """Another worker has done the other steps meanwhile. It is no stop."""
    give_up(*outgoing(11))
    begun(client)
    hooks = _Hooks(only_first=True)
    with mock.patch.object(background, "transaction", hooks):
        drain(OPERATIONS_TOPIC)
    hooks[0]()
    assert last() == "11 dead letters were redriven: topic orders."


def test_the_user_loses_the_permission(client: Client) -> None:
    give_up(*outgoing(11))
    begun(client)
    User.objects.get().user_permissions.clear()
    drain(OPERATIONS_TOPIC)
    assert len(left()) == 7
    assert last() == (
        "Stopped, because the user no longer has the permission: 4 dead letters were redriven so far; 4 were examined:"
        " topic orders."
    )


def test_a_user_model_without_has_perms(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a custom user model, Django's admin needs only ``has_perm``."""
    monkeypatch.delattr(PermissionsMixin, "has_perms")
    give_up(*outgoing(11))
    begun(client)
    drain(OPERATIONS_TOPIC)
    assert left() == []


def test_the_user_is_deleted(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Django deletes the entry with its user. The record of actions stays."""
    give_up(*outgoing(11))
    begun(client)
    User.objects.get().delete()
    drain(OPERATIONS_TOPIC)
    assert len(left()) == 7
    assert "admin operation stopped" in caplog.text
    assert (actions.recent(TOPIC)[0].action, actions.recent(TOPIC)[0].by) == ("redrive", "operator")


def test_a_time_in_a_time_zone_without_a_name(client: Client) -> None:
    give_up(*outgoing(11))
    with timezone.override(timezone.get_fixed_timezone(600)):
        begun(client, after=f"{timezone.localtime() - timedelta(minutes=5):%Y-%m-%dT%H:%M:%S}")
    drain(OPERATIONS_TOPIC)
    assert left() == []


def test_a_step_that_fails_is_done_again(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Its redrives are rolled back with it, so each counts once."""
    give_up(*outgoing(8))
    begun(client)
    step = bulk_redrive.step
    failed: list[bulk_redrive.Progress] = []

    def fails_once(*arguments: Any, **options: Any) -> bulk_redrive.Progress:
        done = step(*arguments, **options)
        if not failed:
            failed.append(done)
            raise Postpone
        return done

    with mock.patch.object(bulk_redrive, "step", fails_once):
        drain(OPERATIONS_TOPIC)
    assert last() == "8 dead letters were redriven: topic orders."
    assert len(given("billing", 8)) == 8


def test_a_step_that_always_fails_ends_the_operation(client: Client) -> None:
    """The log of actions names the error, but not its text, which may have values of payloads."""
    give_up(*outgoing(8))
    url = begun(client)
    with mock.patch.object(bulk_redrive, "step", side_effect=LookupError("card 5105105105105100")):
        with Subscription(OPERATIONS_TOPIC, GROUP, max_attempts=ATTEMPTS + 2) as subscription:
            for _ in range(ATTEMPTS):
                (delivery,) = poll_until(subscription, 1)
                delivery.nack(error="LookupError: card 5105105105105100")
        drain(OPERATIONS_TOPIC)
    assert last() == (
        "Failed with LookupError: 4 dead letters were redriven so far; 4 were examined: topic orders."
    )
    assert last() in text(html_of(client, url))


def test_the_rate_holds_for_the_worker(client: Client) -> None:
    """A step waits until the messages of the previous one have taken their time."""
    give_up(*outgoing(8))
    begun(client, rate="2")
    (message,) = Message.objects.filter(topic=OPERATIONS_TOPIC)
    work = handing_over.newest("default", message.partition_key)
    assert work is not None
    assert (work[0].pause, len(left())) == (1, 6)
    assert "operations of the admin" in run(OPERATIONS_TOPIC)
    while last().startswith("Under way"):  # A drain ends while a step waits.
        run(OPERATIONS_TOPIC)
    assert last() == "8 dead letters were redriven: topic orders."
    offsets = Message.objects.filter(topic=OPERATIONS_TOPIC).order_by("offset")
    times = list(offsets.values_list("published_at", flat=True))
    assert all(later - before >= 999 for before, later in pairwise(times))


def test_the_plan_says_how_long_it_takes(client: Client) -> None:
    give_up(*outgoing(8))
    html = html_of(client, url_of("redrive_matching"), {"topic": TOPIC, "rate": "2"})
    assert "At most 2 messages per second: it takes about 4 s." in text(html)
    assert "As fast as possible." in text(html_of(client, url_of("redrive_matching"), {"topic": TOPIC}))
    again = client.post(
        url_of("redrive_matching"), {**hidden(html), "rate": "4", "again": "Calculate again"}
    ).content.decode()
    assert "At most 4 messages per second: it takes about 2 s." in text(again)
    assert len(left()) == 8


def test_a_stop_needs_the_permission_of_the_operation(client: Client) -> None:
    give_up(*outgoing(8))
    url = begun(client, "purge_matching", typed=TOPIC)
    other = staff("view_deadletter", "redrive_deadletter", name="other")
    html = html_of(other, url)
    assert "Under way" in text(html)
    assert 'name="stop"' not in html
    assert other.post(url, {"stop": "Stop"}).status_code == 403
    assert last().startswith("Under way")
    assert staff("view_message", name="blind").get(url).status_code == 403
    for entry in ("", "x", "999999"):
        assert client.get(url_of("deadletter_run"), {"entry": entry}).status_code == 404


def test_the_page_outlives_the_steps(client: Client) -> None:
    """Garbage collection deletes them. The log of actions has the result."""
    give_up(*outgoing(8))
    url = begun(client)
    drain(OPERATIONS_TOPIC)
    Message.objects.filter(topic=OPERATIONS_TOPIC).delete()
    assert "8 dead letters were redriven: topic orders." in text(html_of(client, url))
    client.post(url, {"stop": "Stop"})
    assert last() == "8 dead letters were redriven: topic orders."
    assert LogEntry.objects.count() == 1
    other = staff("view_deadletter", name="other")
    assert other.get(url).status_code == 404
    User.objects.get(username="other").user_permissions.add(Permission.objects.get(codename="view_logentry"))
    assert other.get(url).status_code == 200


def test_the_topic_of_operations_is_the_queues_own(client: Client) -> None:
    """Nobody can publish to it, lists of topics leave it out, and its payloads are masked: filters may have secrets."""
    with pytest.raises(ValueError, match="reserved for operations of the admin"):
        publish(OPERATIONS_TOPIC, {})
    give_up(*outgoing(8))
    begun(client)
    assert OPERATIONS_TOPIC not in [one.topic for one in topics().topics]
    looker = staff("view_message", name="looker")
    (row,) = listed(looker, "message", topic=OPERATIONS_TOPIC)
    assert row["payload_head"] == "masked: a record of the queue"
    assert all(handler.topic != OPERATIONS_TOPIC for handler in registry.handlers())
