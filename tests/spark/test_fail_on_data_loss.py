"""A query with ``failOnDataLoss`` false also continues over a gap while it runs. Nothing here needs Spark."""

from __future__ import annotations

import pytest

from django_mqueue import publish, publish_many, unsubscribe
from django_mqueue.exceptions import GroupTaken
from django_mqueue.models import SubscriberHeartbeat

from .conftest import Make
from .streams import change_by_hand, newest, reads_log, stands_at

pytestmark = pytest.mark.django_db(transaction=True)

GROUP = "archive"


@pytest.mark.parametrize("how", ["unsubscribed", "reset", "subscribed again"])
def test_a_query_that_is_to_go_on_goes_on_when_its_group_is_changed_by_hand(make: Make, how: str) -> None:
    publish_many("orders", range(3))
    careless = make(failOnDataLoss="false")
    begun = careless.initial()
    careless.done(begun)
    ended = careless.latest(begun, None)
    change_by_hand(GROUP, how)
    with pytest.warns(UserWarning, match="unsubscribed from topic 'orders', reset, or registered again"):
        careless.done(ended)
    assert (stands_at(GROUP), reads_log(GROUP)) == (newest(), True)
    publish("orders", 3)
    later = careless.latest(ended, None)
    assert later.generations != ended.generations
    assert sum(each.rows for each in careless.ranges(ended, later)) == 1
    careless.done(later)
    assert stands_at(GROUP) == newest()
    assert SubscriberHeartbeat.objects.get().deregistered_at is None, "another one could read for it, too"


def test_who_was_replaced_does_not_begin_anew(make: Make) -> None:
    """The query was paused.

    Meanwhile its checkpoint was started in another process, and the group was registered again.
    """
    publish_many("orders", range(3))
    careless, again = (make(failOnDataLoss="false") for _ in range(2))
    ended = careless.latest(careless.initial(), None)
    unsubscribe("orders", GROUP)
    with pytest.warns(UserWarning, match="may be deleted"):
        again.done(ended)
    with pytest.warns(UserWarning, match="may be deleted"), pytest.raises(GroupTaken, match="started again"):
        careless.done(ended)
