"""The numbers of all leases, and of the free and expired ones, that decide about shares."""

from __future__ import annotations

import pytest

from django_mqueue import subscribe
from django_mqueue.models import PartitionLease
from django_mqueue.store import leases
from django_mqueue.store.leases import Holder
from django_mqueue.store.queries import discovery, group_summaries
from tests.factories import LeaseFactory
from tests.support.plans import planned
from tests.support.processes import database_ms

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = 60_000
FRESH = 2_000


def test_each_lease_counts_once() -> None:
    """A lease that was released long ago is free and old: it is one lease that can be taken."""
    subscribe("orders", "billing")
    now = database_ms()
    for number, (holder, renewed) in enumerate(
        [("", 1), ("", now), ("dead", 1), ("alive", now), ("alive", now + 3_600_000)]
    ):
        LeaseFactory(partition_key=f"k{number}", holder=holder, lease_renewed_at=renewed)
    LeaseFactory(consumer_group="another", holder="")
    found = discovery.read("default", "billing", "orders", LEASE)
    assert (found.leased, found.free) == leases.overview("default", "billing", "orders", LEASE) == (5, 3)
    for incarnation, takeable in (("mine", {"k0", "k1", "k2"}), ("dead", {"k0", "k1"})):
        taken = leases.takeable("default", Holder("billing", "orders", "w", incarnation), LEASE, 10)
        assert {partition for _, partition in taken} == takeable


def test_free_leases_do_not_hide_the_holders() -> None:
    for number, holder in enumerate(["", "", "", "alive", "alive"]):
        LeaseFactory(partition_key=f"k{number}", holder=holder)
    assert group_summaries.holders("default", "billing", "orders", 2) == {"alive": 2}


@pytest.mark.parametrize("expired", [0, 100])
def test_held_leases_are_read_once(expired: int) -> None:
    """Through the index by time only the expired ones are read, and never an entry that a renewal has just left."""
    subscribe("orders", "billing")
    now = database_ms()
    PartitionLease.objects.bulk_create(
        LeaseFactory.build(partition_key=f"k{number}", lease_renewed_at=1 if number < expired else now)
        for number in range(FRESH)
    )
    with planned() as plans:
        found = discovery.read("default", "billing", "orders", LEASE)
        assert (
            len(leases.takeable("default", Holder("billing", "orders", "w", "mine"), LEASE, FRESH)) == expired
        )
    assert (found.leased, found.free) == (FRESH, expired)
    count, take = plans.values()
    assert FRESH + expired <= count.read < FRESH + expired + 50, str(count)
    assert expired <= take.read < 3 * expired + 50, str(take)
