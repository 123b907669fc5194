"""The handler of long operations of the admin. ``runconsumer`` runs it with the project's handlers."""

from __future__ import annotations

from .policy.backoff import ExponentialBackoff, policy_of
from .policy.names import OPERATIONS_TOPIC
from .protocol.delivery import Delivery
from .service.bulk_work import GROUP
from .service.topics import internal_topics
from .workers.registry import Handler, add

ATTEMPTS = 10
VISIBLE_MS = 60_000


def do_step(delivery: Delivery) -> None:
    """Do the next step of an operation, in the transaction that acknowledges its message."""
    # Imported here, because it needs the app of Django's admin. Without that app, no such message exists.
    from .admin.dead_letters import background

    background.do_step(delivery, is_last_attempt=delivery.attempt > ATTEMPTS)


internal_topics.add(OPERATIONS_TOPIC)
add(
    Handler(
        function=do_step,
        topic=OPERATIONS_TOPIC,
        group=GROUP,
        name="operations of the admin",
        batch_size=1,
        concurrency=1,
        strict=False,
        max_attempts=ATTEMPTS + 1,
        retry=policy_of(ExponentialBackoff(first=1, factor=2, max=60)),
        visible_ms=VISIBLE_MS,
        start="earliest",
        atomic=True,
    )
)
