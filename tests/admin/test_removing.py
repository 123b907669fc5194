"""Pages and figures of a group during an unfinished reset or unsubscribe: they show nothing from before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.test import Client, override_settings

from django_mqueue import Subscription, publish_many, subscribe, unsubscribe
from django_mqueue.inspect import group_figures, holds, lag
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Message
from django_mqueue.store import removal
from tests.features.groups.test_removal import forced_reset, half_done
from tests.features.inspect.scene import GROUP, TOPIC
from tests.support.subscribers import QUICK, consume, settle

from .looking import html_of, listed, text
from .operating import url_of
from .overview_tables import rows, tiles

pytestmark = pytest.mark.django_db(transaction=True)

RESETTING = "Resetting: nothing is delivered until its old delivery state is deleted"
BEING_REMOVED = "Being removed: it is not registered, and its delivery state is being deleted"
PAIR = (TOPIC, GROUP)


@pytest.fixture(autouse=True)
def done(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Publish twenty messages of five keys, all acknowledged by the group.

    A removal deletes the position of the oldest message's key last.
    """
    cache.clear()
    monkeypatch.setattr(removal, "ROWS", 3)
    subscribe(TOPIC, "stock")
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{4 - n % 5}") for n in range(20)])
    with Subscription(TOPIC, GROUP) as subscription:
        consume(subscription, 20)
        settle(subscription)
    with override_settings(MQUEUE={**QUICK, "RETENTION": 0}):
        yield


def group_page(client: Client) -> str:
    return html_of(client, url_of("group"), {"topic": TOPIC, "group": GROUP})


def held_by() -> dict[str | None, str]:
    return {hold.group: hold.reason for hold in holds(TOPIC)}


class TestReset:
    @pytest.fixture(autouse=True)
    def _half_done(self, done: None) -> None:
        half_done(forced_reset)

    def test_figures_do_not_count_what_was_done_before(self) -> None:
        figures = group_figures([PAIR])[PAIR]
        assert (figures.registered, figures.removing) == (True, True)
        assert (figures.pending.value, figures.oldest, figures.quiet_for) == (0, None, None)
        found = lag(*PAIR)
        assert (found.removing, found.total.value, found.partitions) == (True, 0, ())
        assert held_by() == {GROUP: "resetting", "stock": "no_worker"}
        oldest = Message.objects.filter(topic=TOPIC).order_by("offset")[0].offset
        assert {(hold.offset, hold.watermark) for hold in holds(TOPIC)} == {(oldest, 0)}

    def test_the_groups_page_says_so_and_shows_no_figures(self, admin_client: Client) -> None:
        html = group_page(admin_client)
        assert RESETTING in text(html)
        assert tiles(html) == {}
        assert 'id="partitions"' not in html
        assert ">Pause</a>" in html

    def test_the_overview_and_the_lists_say_so(self, admin_client: Client) -> None:
        pages = [
            html_of(admin_client, url_of("overview")),
            html_of(admin_client, url_of("consumergroup_changelist")),
            html_of(admin_client, url_of("topic"), {"topic": TOPIC}),
        ]
        for html in pages:
            row = rows(html)[GROUP]
            assert RESETTING in row["State"]
            assert (row["Pending"], row["In flight"], row["For retry"]) == ("", "", "")
            assert not row.get("Finished per minute")
        assert "Deletion waits for group billing, whose reset is not finished" in text(pages[2])
        assert [
            one["status"] for one in listed(admin_client, "offset") if one["partition"] == "registration"
        ] == [
            "resetting",
            "active",
        ]

    def test_all_is_told_when_it_is_finished(self, admin_client: Client) -> None:
        forced_reset()
        assert lag(*PAIR).total.value == 20
        assert held_by() == {GROUP: "no_worker", "stock": "no_worker"}
        html = group_page(admin_client)
        assert "Resetting" not in text(html)
        assert tiles(html)["Pending"] == "20"


def test_a_group_that_is_being_removed_says_so(admin_client: Client) -> None:
    half_done(lambda: unsubscribe(TOPIC, GROUP))
    assert BEING_REMOVED in text(group_page(admin_client))
    figures = group_figures([PAIR, (TOPIC, "nobody")])
    assert {group: one.removing for (_, group), one in figures.items()} == {GROUP: True, "nobody": False}
    assert lag(*PAIR).removing
    mark = {"partition": f"removal of group {GROUP}", "status": "being removed"}
    assert mark.items() <= listed(admin_client, "offset", whose="topics")[-1].items()
    unsubscribe(TOPIC, GROUP)
    assert not group_figures([PAIR])[PAIR].removing
    assert "Being removed" not in text(group_page(admin_client))
