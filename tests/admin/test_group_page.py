"""The page of a group, and the list of groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_mqueue import OutgoingMessage, pause, publish_many, subscribe
from django_mqueue.admin.topics import status
from django_mqueue.admin.topics.charts import lag_over_time, lag_values, throughput, with_gaps
from django_mqueue.inspect import Figure, Lag, Rates, Series
from django_mqueue.models import PartitionLease
from django_mqueue.stats.summaries import recently
from tests.features.inspect.scene import GROUP, TOPIC, one_of_each

from .looking import html_of, text
from .operating import staff, url_of
from .overview_tables import rows, tiles

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("nothing_remembered")]


def page(client: Client, topic: str = TOPIC, group: str = GROUP, **query: str) -> str:
    return html_of(client, url_of("group"), {"topic": topic, "group": group, **query})


def partitions(html: str) -> list[list[str]]:
    """Return the key, the lag and the owner of each partition."""
    part = html.partition('id="partitions"')[2].partition("</table>")[0].partition("<tbody>")[2]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in part.split("</tr>")]
    return [[text(one) for one in row[:3]] for row in cells if row]


def listed(client: Client, **query: str) -> list[tuple[str, str]]:
    html = html_of(client, url_of("consumergroup_changelist"), query)
    names = re.findall(
        r'<th scope="row" role="rowheader">(.*?)</th>.*?data-label="Topic">(.*?)</td>', html, re.DOTALL
    )
    return [(text(topic), text(group)) for group, topic in names]


def test_what_is_open_is_asked_once(admin_client: Client) -> None:
    """One query of open deliveries serves both the subscribers' numbers and their messages in flight."""
    one_of_each()
    with CaptureQueriesContext(connection) as captured:
        assert 'id="subscribers"' in page(admin_client)
    open_ones = [one["sql"] for one in captured if "STRAIGHT_JOIN queue_delivery_state s FORCE" in one["sql"]]
    assert len([sql for sql in open_ones if "queue_leases_partition" in sql]) == 1, open_ones


def test_how_a_group_stands(admin_client: Client) -> None:
    one_of_each()
    html = page(admin_client)
    found = tiles(html)
    names = ("Pending", "In flight", "For retry", "Scheduled", "Dead letters", "Subscribers alive")
    assert {name: found[name] for name in names} == dict.fromkeys(names, "1")
    assert found["Lag"].startswith("3")
    assert found["p50, the last hour"].endswith("of 2 messages")
    assert sorted(partitions(html)) == [
        ["in_flight", "1", "worker-1"], ["pending", "1", "no subscriber"], ["waiting", "1", "worker-1"],
    ]  # fmt: skip
    for title in ("Messages per minute", "How long messages take", "Lag"):
        assert f"<figcaption>{title}</figcaption>" in html


def test_an_owner_that_is_silent_is_said(admin_client: Client) -> None:
    one_of_each()
    assert "silent" not in text(page(admin_client))
    PartitionLease.objects.filter(partition_key="waiting").update(lease_renewed_at=1)
    cache.clear()
    row = page(admin_client).partition('id="partitions"')[2].partition(">waiting<")[2].partition("</tr>")[0]
    assert "silent" in row


def test_buttons_by_right_and_by_how_it_stands() -> None:
    subscribe(TOPIC, GROUP)
    client = staff("view_consumergroup", "pause_consumergroup", "resume_consumergroup")
    assert ">Pause</a>" in page(client)
    assert ">Resume</a>" not in page(client)
    pause(TOPIC, GROUP)
    assert ">Pause</a>" not in page(client)
    assert ">Resume</a>" in page(client)
    html = page(staff("view_consumergroup", name="other"))
    assert ">Resume</a>" not in html
    for hidden in ("topic", "message_changelist", "deadletter_list", "group_subscribers"):
        assert f'href="{url_of(hidden)}' not in html


def test_who_may_see_it() -> None:
    subscribe(TOPIC, GROUP)
    client = staff("view_topic", "view_message", "pause_consumergroup")
    assert client.get(url_of("group"), {"topic": TOPIC, "group": GROUP}).status_code == 403
    assert client.get(url_of("consumergroup_changelist")).status_code == 403


def test_one_that_is_not_registered(admin_client: Client) -> None:
    html = text(page(admin_client, TOPIC, "nobody"))
    assert "Not registered: the group receives nothing, and deletion does not wait for it" in html
    assert ">Pause</a>" not in html


@pytest.mark.parametrize(
    ("topic", "group"), [("", "g"), ("t", ""), ("t", "x" * 300), ("t_scheduled", "g"), (" t", "g")]
)
def test_what_no_names_can_be_is_not_found(admin_client: Client, topic: str, group: str) -> None:
    assert admin_client.get(url_of("group"), {"topic": topic, "group": group}).status_code == 404


def test_hostile_names(admin_client: Client) -> None:
    evil = "<b>'\"&?#%2F/\U0001f600"
    subscribe(evil, evil)
    publish_many(evil, [1])
    html = page(admin_client, evil, evil)
    assert "<b>'" not in html
    (url,) = re.findall(r'<a href="([^"]+)" aria-current="true"', html)
    assert f"{evil} on {evil}" in unescape(html_of(admin_client, url_of("group") + unescape(url)))


def test_statements_do_not_grow_with_keys(admin_client: Client) -> None:
    subscribe(TOPIC, GROUP)
    counted = []
    for keys in (5, 40):  # With one message, several queries would be identical.
        # Keyless messages would be spread at random. Five keys sort in publish order, forty do not.
        publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n}") for n in range(keys)])
        page(admin_client)
        cache.clear()
        with CaptureQueriesContext(connection) as captured:
            page(admin_client)
        counted.append(len(captured))
    assert counted[0] == counted[1]


def test_the_list_finds_by_names_and_pages_by_key(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "TOPICS_ON_A_PAGE", 2)
    for topic, group in (("a", "x&y"), ("a", "z"), ("b", "x"), ("c?", "w")):
        subscribe(topic, group)
    assert listed(admin_client) == [("a", "x&y"), ("a", "z")]
    html = html_of(admin_client, url_of("consumergroup_changelist"))
    (following,) = re.findall(r'href="(\?after=[^"]+)">Next page', html)
    assert unescape(following) == "?after=a&behind=z"
    assert listed(admin_client, after="a", behind="z") == [("b", "x"), ("c?", "w")]
    assert listed(admin_client, find="x") == [("a", "x&y"), ("b", "x")]
    assert listed(admin_client, topic="?") == [("c?", "w")]
    assert "No group matches." in html_of(admin_client, url_of("consumergroup_changelist"), {"find": "zz"})
    assert rows(html)["z"]["State"] == "No subscriber is alive"


def test_rows_of_the_log_of_actions_lead_here(admin_client: Client) -> None:
    from django_mqueue.admin.base.row_ids import encode

    url = url_of("consumergroup_change", encode(("a/b", "g")))
    assert admin_client.get(url).headers["Location"] == f"{url_of('group')}?topic=a%2Fb&group=g"
    assert admin_client.get(url_of("consumergroup_change", "1")).headers["Location"] == url_of(
        "consumergroup_changelist"
    )


def test_the_lag_of_before_is_reckoned_back() -> None:
    def series(*values: int) -> Series:
        return Series(values, Figure(sum(values)))

    start = datetime(2026, 1, 1, tzinfo=UTC)

    def rates(published: Series, finished: Series | None, since: datetime = start) -> Rates:
        dead = series(*(0 for _ in published.values))
        return Rates("t", "g", start, timedelta(minutes=1), published, finished, dead, since, None)

    found = rates(series(5, 0, 2), series(1, 3, 0))
    assert lag_values(3, found) == [4, 1, 3]
    assert lag_values(0, found) == [1, 0, 0], "never under nothing"
    assert lag_values(3, rates(series(5), None)) == [None]


def test_what_the_log_does_not_keep_any_more_is_a_gap() -> None:
    """Empty steps before the retention are unknown. Steps with remaining messages show their count."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    published = Series((0, 3, 0, 2), Figure(5, "at_least"))
    since = start + timedelta(minutes=2)
    found = Rates("t", None, start, timedelta(minutes=1), published, None, published, since, None)
    assert with_gaps(found, published.values, since) == [None, 3, 0, 2]
    assert with_gaps(found, published.values, None) == [0, 3, 0, 2]
    html = throughput(found)
    assert "Numbers before 00:02 are minimums" in html


MADE = datetime(2026, 1, 1, tzinfo=UTC)


def made(published: Sequence[int], finished: Sequence[int], finished_from: int, minutes: float) -> Rates:
    """Return rates per minute, counted after ``minutes``. Acks are known from ``finished_from`` on."""
    mine, done = (Series(tuple(values), Figure(sum(values))) for values in (published, finished))
    dead = Series(tuple(0 for _ in published), Figure(0))
    minute = timedelta(minutes=1)
    return Rates(
        "t", "g", MADE, minute, mine, done, dead, MADE, MADE + finished_from * minute, MADE + minutes * minute
    )


def test_what_a_reset_has_forgotten_is_a_gap() -> None:
    """The publishes before and after the reset are known. The acks before it are not."""
    found = made([4, 4, 4, 4], [0, 0, 3, 4], 2, 4)
    assert lag_values(1, found) == [None, 0, 1, 1]
    assert with_gaps(found, found.finished.values if found.finished else (), found.finished_from) == [
        None, None, 3, 4,
    ]  # fmt: skip
    html = throughput(found)
    assert "Numbers of finished messages before 00:02 are incomplete" in html
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    assert ["not known" in row for row in rows[1:]] == [False, False, True, True], "the newest first"
    assert "Numbers of finished messages before 00:02 are incomplete" in lag_over_time(
        Lag("t", "g", Figure(1), (), 0, False), found
    )


def test_the_step_that_is_not_over_is_no_fall_of_throughput() -> None:
    found = made([6, 6, 1], [6, 6, 1], 0, 2.1)
    assert with_gaps(found, found.published.values, None) == [6, 6, None]
    assert lag_values(5, found)[-1] == 5, "the lag of now is known"
    assert recently(found, found.published) == pytest.approx(13 / 2.1)
