"""Messages from archive and log: none is missing at the border, and none is in both. Nothing here needs Spark."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

from django_mqueue import publish, publish_many, reset, subscribe, unsubscribe
from django_mqueue.exceptions import LogGap
from django_mqueue.models import Offset
from django_mqueue.spark.archives.topic_state import gap_above
from django_mqueue.spark.database import following
from django_mqueue.spark.errors import ArchiveError, NoArchive, NoSuchTopic
from django_mqueue.spark.reader import settling
from django_mqueue.spark.replays import originals
from django_mqueue.spark.replays.originals import GuardedSource, Originals
from django_mqueue.store import offsets
from tests.support.subscribers import collect, in_log
from tests.support.transactions import HeldTransaction

from . import archives
from .streams import newest, settle, stands_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

SPARK = cast("SparkSession", None)
"""No session: none of these functions uses it."""


class Archived:
    """A topic's log. Each batch is archived by hand and then deleted."""

    def __init__(self, folder: Path) -> None:
        self.folder = archives.begin(folder)
        self.upto = 0
        publish_many("orders", range(3))
        self.life = following.follow("orders", "archive", 0, 0, using="default").generation

    def batch(self) -> None:
        offsets = [offset for offset in in_log("orders") if offset > self.upto]
        archives.batch(self.folder, "orders", offsets, life=self.life)
        self.upto = offsets[-1]
        settle("orders")
        following.move("orders", "archive", self.life, self.upto, using="default")
        with override_settings(MQUEUE={"RETENTION": 0}):
            collect("orders")


@pytest.fixture
def archived(tmp_path: Path, options: dict[str, str]) -> Archived:
    found = Archived(tmp_path / "archive")
    found.batch()
    return found


def hold(archived: Archived, options: dict[str, str], *, path: Path | None = None, **more: Any) -> Originals:
    return hold_topic("orders", path or archived.folder, options, **more)


def hold_topic(topic: str, path: Path | None, options: dict[str, str], **more: Any) -> Originals:
    source = GuardedSource(SPARK, topic, path, options, "guard")
    return source.hold_back_deletion("default", **{"begun": False, "gap_is_error": True, **more})


def test_the_log_is_held_from_where_the_archive_ends(archived: Archived, options: dict[str, str]) -> None:
    publish_many("orders", range(3, 6))
    found = hold(archived, options)
    assert (found.archived, found.upto) == (archived.upto, newest())
    archived.batch()
    assert len(in_log("orders")) == 3, "deleted, though they are held"
    following.forget("orders", "guard", using="default")
    with override_settings(MQUEUE={"RETENTION": 0}):
        collect("orders")
    assert in_log("orders") == []


def test_the_archive_is_looked_at_again_when_deletion_is_held_back(
    archived: Archived, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_many("orders", range(3, 6))
    follow = following.follow

    def late(*given: Any, **more: Any) -> following.ReaderPosition:
        archived.batch()
        return follow(*given, **more)

    monkeypatch.setattr(following, "follow", late)
    found = hold(archived, options)
    assert in_log("orders") == []
    assert found.archived == archived.upto


@pytest.mark.parametrize("how", ["unsubscribed", "registered anew", "moved"])
def test_a_gap_is_an_error_and_nothing_is_held(archived: Archived, options: dict[str, str], how: str) -> None:
    publish_many("orders", range(3, 6))
    settle("orders")
    if how == "moved":
        following.move("orders", "archive", archived.life, newest(), using="default")
    else:
        unsubscribe("orders", "archive")
    if how == "registered anew":
        following.follow("orders", "archive", archived.upto, newest(), using="default")
    with pytest.raises(LogGap, match="Messages above that offset may be deleted"):
        hold(archived, options)
    assert following.position("orders", "guard", using="default") is None
    assert hold(archived, options, gap_is_error=False).archived == archived.upto
    assert hold(archived, options, begun=True).archived == archived.upto, "it has been held ever since"


def test_a_gap_is_an_error_though_the_connection_is_lost_while_it_is_looked_for(
    archived: Archived, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry finds that the group that holds back deletion is already registered."""
    unsubscribe("orders", "archive")
    looked = count()

    def losing(*given: Any) -> Any:
        if next(looked) == 0:
            raise OperationalError(2013, "Lost connection to server during query")
        return gap_above(*given)

    monkeypatch.setattr(originals, "gap_above", losing)
    source = GuardedSource(SPARK, "orders", archived.folder, options, "guard")
    with closing(source.connection), pytest.raises(LogGap, match="its group 'archive' is not registered"):
        source.connection.run(partial(source.hold_back_deletion, gap_is_error=True, begun=False))
    assert next(looked) == 2, "no connection was lost: this proves nothing"
    assert following.position("orders", "guard", using="default") is None


def test_a_gap_is_an_error_though_a_killed_run_has_left_its_guard(
    archived: Archived, options: dict[str, str]
) -> None:
    unsubscribe("orders", "archive")
    following.follow("orders", "guard", archived.upto, archived.upto, using="default")
    with pytest.raises(LogGap, match="its group 'archive' is not registered"):
        hold(archived, options)
    assert following.position("orders", "guard", using="default") is None


@pytest.mark.filterwarnings("ignore:topic 'orders' is read up to offset")
def test_an_archive_above_what_is_settled_settles_nothing(
    archived: Archived, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored database reuses the archive's offsets, and one transaction is still open."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE queue_messages AUTO_INCREMENT = {archived.upto - 1:d}")
    Offset.objects.filter(topic="orders").update(offset_acked=archived.upto - 2)
    monkeypatch.setattr(settling, "SETTLE_FOR", 0.1)
    with HeldTransaction(lambda: publish("orders", "late")):
        assert publish("orders", "overtakes it").offset == archived.upto
        found = hold(archived, options, gap_is_error=False)
        assert found.upto == archived.upto
        assert offsets.settled("default", "orders") == archived.upto - 2
        assert stands_at("guard") == archived.upto - 2


def test_who_has_begun_goes_on_though_the_archive_s_group_has_left(
    archived: Archived, options: dict[str, str]
) -> None:
    publish_many("orders", range(3, 6))
    hold(archived, options)
    unsubscribe("orders", "archive")
    with override_settings(MQUEUE={"RETENTION": 0}):
        collect("orders")
    assert hold(archived, options, begun=True).archived == archived.upto
    assert len(in_log("orders")) == 3


def test_a_guard_that_was_unsubscribed_has_held_nothing(archived: Archived, options: dict[str, str]) -> None:
    hold(archived, options)
    unsubscribe("orders", "guard")
    for _ in range(2):
        with pytest.raises(
            LogGap,
            match=r"group 'guard', .* was unsubscribed .*: a replay with another name, a backfill after you",
        ):
            hold(archived, options, begun=True)
    assert following.position("orders", "guard", using="default") is None
    hold(archived, options, begun=True, gap_is_error=False)
    assert following.position("orders", "guard", using="default") is not None


def test_an_archive_that_ends_below_the_guard_leaves_a_gap(
    archived: Archived, options: dict[str, str], tmp_path: Path
) -> None:
    older = archives.begin(tmp_path / "older")
    archives.batch(older, "orders", [archived.upto - 1], life=archived.life)
    hold(archived, options)
    before = following.position("orders", "guard", using="default")
    with pytest.raises(LogGap, match=f"up to offset {archived.upto - 1}, but since the start group 'guard'"):
        hold(archived, options, begun=True, path=older)
    assert following.position("orders", "guard", using="default") == before


def test_a_guard_that_is_left_over_goes_back_to_where_this_archive_ends(
    archived: Archived, options: dict[str, str]
) -> None:
    publish_many("orders", range(3, 6))
    settle("orders")
    left = following.follow("orders", "guard", newest(), newest(), using="default")
    hold(archived, options)
    assert following.position("orders", "guard", using="default") == following.ReaderPosition(
        left.generation, archived.upto
    )
    archived.batch()
    assert len(in_log("orders")) == 3, "deleted, though they are held"


def test_the_archive_of_another_database_is_told(archived: Archived, options: dict[str, str]) -> None:
    archives.batch(archived.folder, "orders", [archived.upto + 1000], life=archived.life)
    with pytest.raises(ArchiveError, match="the archive belongs to another database"):
        hold(archived, options)
    assert following.position("orders", "guard", using="default") is None


def test_an_archive_that_lacks_the_topic_is_told_and_nothing_is_held(
    archived: Archived, options: dict[str, str]
) -> None:
    before = list(Offset.objects.order_by("pk").values())
    with pytest.raises(NoSuchTopic, match="has no topic 'orderz'; it has orders"):
        hold_topic("orderz", archived.folder, options)
    assert list(Offset.objects.order_by("pk").values()) == before


def test_a_topic_that_never_was_is_told_and_nothing_is_held(options: dict[str, str]) -> None:
    """A replay of a mistyped topic would store nothing, and count as finished for ever."""
    publish_many("orders", range(3))
    before = list(Offset.objects.order_by("pk").values())
    with pytest.raises(NoSuchTopic, match=r"no topic 'orderz'.* Did you mean 'orders'"):
        hold_topic("orderz", None, options)
    assert list(Offset.objects.order_by("pk").values()) == before


def test_without_an_archive_all_is_the_log_s(options: dict[str, str]) -> None:
    publish_many("orders", range(3))
    found = hold_topic("orders", None, options)
    assert (found.archived, found.upto) == (0, newest())
    subscribe("orders", "others")
    reset("orders", "others", "latest")
    with override_settings(MQUEUE={"RETENTION": 0}):
        collect("orders")
    assert len(in_log("orders")) == 3


def test_no_archive_is_told(options: dict[str, str], tmp_path: Path) -> None:
    publish_many("orders", range(3))
    with pytest.raises(NoArchive):
        hold_topic("orders", tmp_path, options)
    assert following.position("orders", "guard", using="default") is None
