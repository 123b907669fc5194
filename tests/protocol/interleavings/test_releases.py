"""A caller releases a lease by hand while another step uses it. Each test runs one order of the two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_mqueue import Released, StaleDelivery, Subscription, publish, release
from django_mqueue.service import releasing
from django_mqueue.store import leases
from tests.support.subscribers import consume, engine_of
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

from .sides import ends
from .steps import COMMIT, Stopped
from .workers import GROUP, TOPIC, acquire, claim, expire, owner, renew, state, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("still")]

LOCKING = "FOR UPDATE SKIP LOCKED"
FREE, LEFT, GONE = Released(("k",), (), ()), Released((), ("k",), ()), Released((), (), ("k",))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a release retry for as long as the test needs."""
    monkeypatch.setattr(releasing, "LOCK_WAIT_SECONDS", 3600.0)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a release that finds the lease locked return at once, without retries."""
    monkeypatch.setattr(releasing, "LOCK_WAIT_SECONDS", 0.0)


@pytest.fixture
def pair() -> Iterator[tuple[Subscription, Subscription]]:
    """Two members, A and B. A has the only partition."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        yield a, b


def released() -> Released:
    return release(TOPIC, GROUP, partition="k")


def test_who_lost_it_can_do_nothing_and_another_goes_on(pair: tuple[Subscription, Subscription]) -> None:
    """A has a message in flight. Its lease is released. B leases the partition and gets the message.

    Every answer of A is refused.
    """
    a, b = pair
    (held,) = claim(a)
    assert released() == FREE
    assert acquire(b) == 1
    (again,) = b.poll()
    assert (again.offset, again.attempt) == (held.offset, 2)
    for answer in (held.ack, held.nack, lambda: held.reject("no"), lambda: held.extend(60)):
        with pytest.raises(StaleDelivery):
            answer()
    publish(TOPIC, 2, key="k")
    assert claim(a) == []
    renew(a)
    assert (owner(), list(engine_of(a).state.partitions)) == ("b", [])
    assert again.ack()
    consume(b, 1)
    assert state_is_done()


def state_is_done() -> bool:
    from django_mqueue.models import DeliveryState

    return all(DeliveryState.objects.values_list("acked", flat=True))


def test_an_answer_before_anybody_has_taken_it_is_refused_too(
    pair: tuple[Subscription, Subscription],
) -> None:
    a, _ = pair
    (held,) = claim(a)
    assert released() == FREE
    with pytest.raises(StaleDelivery):
        held.ack()
    assert not state().acked


def test_its_holder_may_take_it_again_and_knows_that_it_was_lost(
    pair: tuple[Subscription, Subscription],
) -> None:
    a, _ = pair
    (held,) = claim(a)
    assert released() == FREE
    assert acquire(a) == 1
    (again,) = a.poll()
    assert (again.offset, again.attempt) == (held.offset, 2)
    with pytest.raises(StaleDelivery):
        held.ack()
    assert again.ack()


def test_a_release_waits_for_a_claim(pair: tuple[Subscription, Subscription]) -> None:
    """A claims and does not commit. The release finds the lease locked and retries. A commits.

    The release frees the lease.
    """
    a, b = pair
    with Stopped(lambda: claim(a), COMMIT) as claiming, Background(released) as releasing_:
        assert releasing_.keeps_trying(LOCKING)
        assert owner() == "a"
        (held,) = claiming.go()
        assert releasing_.result() == FREE
    with pytest.raises(StaleDelivery):
        held.ack()
    assert acquire(b) == 1
    assert [one.attempt for one in b.poll()] == [2]


def test_a_claim_does_not_wait_for_a_release_and_gets_nothing(
    pair: tuple[Subscription, Subscription],
) -> None:
    """The release frees the lease and does not commit. A claims, gets nothing and returns.

    The release commits. A still gets nothing.
    """
    a, b = pair
    with Stopped(released, COMMIT) as releasing_:
        assert ends(lambda: claim(a)) == []
        assert releasing_.go() == FREE
    assert claim(a) == []
    assert acquire(b) == 1
    assert [one.attempt for one in b.poll()] == [1]


def test_a_release_waits_for_an_ack_which_counts(pair: tuple[Subscription, Subscription]) -> None:
    """A acks and does not commit. The release retries. A commits.

    The release frees the lease. B leases the partition, and no message is left to deliver.
    """
    a, b = pair
    (held,) = claim(a)
    with Stopped(held.ack, COMMIT) as ack, Background(released) as releasing_:
        assert releasing_.keeps_trying(LOCKING)
        assert ack.go()
        assert releasing_.result() == FREE
    assert acquire(b) == 1
    assert b.poll() == []


def test_an_ack_waits_for_a_release_and_is_refused(pair: tuple[Subscription, Subscription]) -> None:
    """The release frees the lease and does not commit. A acks and waits. The release commits. A's ack is refused."""
    a, b = pair
    (held,) = claim(a)
    with Stopped(released, COMMIT) as releasing_, Background(held.ack) as ack:
        wait_for_lock_wait(ack)
        assert releasing_.go() == FREE
        with pytest.raises(StaleDelivery):
            ack.result()
    assert acquire(b) == 1
    assert [one.attempt for one in b.poll()] == [2]


@pytest.mark.usefixtures("hasty")
def test_a_release_leaves_what_an_open_transaction_has_answered(
    pair: tuple[Subscription, Subscription],
) -> None:
    """A acks in its handler's transaction, which stays open. The release reports this and changes nothing."""
    a, _ = pair
    (held,) = claim(a)
    with HeldTransaction(held.ack) as handler:
        assert ends(released) == LEFT
        assert handler.commit()
    assert owner() == "a"
    assert state().acked


def test_a_release_does_not_wait_in_a_transaction_of_the_callers(
    pair: tuple[Subscription, Subscription],
) -> None:
    a, _ = pair
    (held,) = claim(a)
    with HeldTransaction(held.ack), HeldTransaction(released) as caller:
        assert caller.commit() == LEFT
    assert owner() == "a"


def test_a_renewal_does_not_wait_for_a_release_and_lets_go_at_the_next(
    pair: tuple[Subscription, Subscription],
) -> None:
    """The release frees the lease and does not commit. A renews only unlocked leases. The release commits.

    A renews again, and drops the partition from memory.
    """
    a, _ = pair
    with Stopped(released, COMMIT) as releasing_:
        ends(lambda: renew(a))
        assert list(engine_of(a).state.partitions) == ["k"]
        assert releasing_.go() == FREE
    renew(a)
    assert (owner(), list(engine_of(a).state.partitions)) == ("", [])


def test_a_renewal_between_the_look_and_the_release_saves_nothing(
    pair: tuple[Subscription, Subscription],
) -> None:
    """The release also takes leases that have not expired."""
    a, _ = pair
    with Stopped(released, LOCKING) as releasing_:
        renew(a)
        assert releasing_.go() == FREE
    assert owner() == ""


def test_a_theft_between_the_look_and_the_release(pair: tuple[Subscription, Subscription]) -> None:
    """The release reads that A has the lease. B takes it over. The release leaves B's lease."""
    _, b = pair
    expire()
    with Stopped(released, LOCKING) as releasing_:
        assert acquire(b) == 1
        assert releasing_.go() == GONE
    assert owner() == "b"
    (delivery,) = claim(b)
    assert delivery.ack()


def test_a_theft_does_not_wait_for_a_release(pair: tuple[Subscription, Subscription]) -> None:
    """The release frees the lease and does not commit. B tries to lease it and gets nothing. The release commits.

    B then gets the lease.
    """
    _, b = pair
    with Stopped(released, COMMIT) as releasing_:
        assert ends(lambda: acquire(b)) == 0
        assert releasing_.go() == FREE
    assert acquire(b) == 1


def test_two_releases_of_one_lease(pair: tuple[Subscription, Subscription]) -> None:
    """The first release frees the lease and does not commit. The second retries. The first commits.

    The second finds no lease to release.
    """
    a, _ = pair
    (held,) = claim(a)
    with Stopped(released, COMMIT) as one, Stopped(released, LOCKING) as other:
        other.let_go()
        assert other.keeps_trying(LOCKING)
        assert one.go() == FREE
        assert other.result() == GONE
    assert owner() == ""
    with pytest.raises(StaleDelivery):
        held.ack()


def test_the_end_of_its_holder_between_the_look_and_the_release(
    pair: tuple[Subscription, Subscription],
) -> None:
    a, _ = pair
    with Stopped(released, LOCKING) as releasing_:
        a.close()
        assert releasing_.go() == GONE
    assert owner() == ""


def test_a_release_of_what_a_page_has_shown_long_ago(pair: tuple[Subscription, Subscription]) -> None:
    """``holder`` names the incarnation that the page showed. A release leaves its successors and all other holders."""
    a, b = pair
    shown = engine_of(a).state.holder.incarnation
    expire()
    assert acquire(b) == 1
    assert release(TOPIC, GROUP, partition="k", holder=shown) == Released((), (), ())
    assert release(TOPIC, GROUP, partition="k", subscriber="a") == Released((), (), ())
    assert owner() == "b"
    new = engine_of(b).state.holder.incarnation
    assert release(TOPIC, GROUP, subscriber="b", holder=new) == FREE


def test_another_groups_lease_stays(pair: tuple[Subscription, Subscription]) -> None:
    with Subscription(TOPIC, "stock", name="a") as stock:
        engine_of(stock).tick()
        (theirs,) = stock.poll()
        assert released() == FREE
        assert leases.find_held("default", "stock", TOPIC, "k", "a", None)
        assert theirs.ack()
