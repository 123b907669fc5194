"""The handlers that ``runconsumer`` runs."""

from __future__ import annotations

from django_mqueue import Delivery, ExponentialBackoff, Message, consumer
from tests.proof.plan import AUDIT, BILLING, BOOKS, MAX_ATTEMPTS, STOCK, TAXES, VISIBILITY
from tests.proof.worker_app import watching
from tests.proof.worker_app.acting import act, act_and_take_effect, act_on_batch, given, take_effect

SOON = ExponentialBackoff(first=0.05, factor=2, max=0.5)


@consumer(
    BILLING.topic, group=BILLING.name, max_attempts=MAX_ATTEMPTS, retry=SOON, visibility_timeout=VISIBILITY,
    batch_size=50,
)  # fmt: skip
def bill(message: Message) -> None:
    given(message)
    act(message)


@consumer(
    BOOKS.topic, group=BOOKS.name, strict=True, max_attempts=MAX_ATTEMPTS, retry=SOON,
    visibility_timeout=VISIBILITY,
)  # fmt: skip
def keep_books(message: Message) -> None:
    given(message)
    act(message)


@consumer(
    TAXES.topic, group=TAXES.name, max_attempts=MAX_ATTEMPTS, retry=SOON, visibility_timeout=VISIBILITY,
    batch_size=50,
)  # fmt: skip
def pay_taxes(delivery: Delivery) -> None:
    given(delivery)
    act_and_take_effect(delivery)


@consumer(
    STOCK.topic, group=STOCK.name, batch=True, max_attempts=MAX_ATTEMPTS, retry=SOON,
    visibility_timeout=VISIBILITY, batch_size=20,
)  # fmt: skip
def count_stock(batch: list[Message]) -> None:
    given(*batch)
    act_on_batch(batch)


@consumer(
    AUDIT.topic, group=AUDIT.name, atomic=True, max_attempts=MAX_ATTEMPTS, retry=SOON,
    visibility_timeout=VISIBILITY, batch_size=50,
)  # fmt: skip
def audit(delivery: Delivery) -> None:
    given(delivery)
    watching.note_end_of(delivery)
    take_effect(delivery)


watching.start()
