"""A distributed message queue in the MySQL or MariaDB database of a Django project.

All public names can be imported from here. Names of modules with models are loaded on first use, so that this package
can be in ``INSTALLED_APPS`` before Django's app registry is ready. At once, it imports only the exceptions, the message
types and the retry policies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .exceptions import (
    BatchFailure,
    BrokenTransaction,
    ClosedSubscription,
    DuplicateMessage,
    FencedSubscription,
    GroupActive,
    GroupNotNew,
    GroupReadsLog,
    GroupTaken,
    HandlerError,
    LogGap,
    MQueueError,
    NotARequest,
    NotMigrated,
    NoTransaction,
    NotRegistered,
    Postpone,
    Reject,
    RequestFailed,
    RequestTimeout,
    Retry,
    StaleDelivery,
    Superseded,
    TimeLimitExceeded,
    TooManyHanging,
    WrongDatabase,
)
from .messages import Edited, Message, OutgoingMessage, Published, Reply, ScheduledMessage
from .policy.backoff import Delays, ExponentialBackoff, FixedDelay, NoRetry, RetryOn

if TYPE_CHECKING:
    from .protocol.delivery import Delivery
    from .service.group_positions import pause, reset, resume
    from .service.publish import apublish, publish, publish_many
    from .service.redrive import purge, redrive
    from .service.registration import subscribe, unsubscribe
    from .service.releasing import Released, release
    from .service.requesting import arequest, request
    from .service.scheduling import cancel, reschedule, scheduled
    from .service.subscription import Subscription
    from .service.topics import Topic
    from .workers.registry import consumer

__version__ = "1.0.0"

__all__ = [  # noqa: RUF022 (by subject)
    "BatchFailure", "BrokenTransaction", "ClosedSubscription", "DuplicateMessage", "FencedSubscription", "GroupActive",
    "GroupNotNew", "GroupReadsLog", "GroupTaken", "HandlerError", "LogGap", "MQueueError", "NotARequest",
    "NoTransaction", "NotMigrated", "NotRegistered", "Postpone", "Reject", "RequestFailed", "RequestTimeout", "Retry",
    "StaleDelivery", "Superseded", "TimeLimitExceeded", "TooManyHanging", "WrongDatabase",
    "Edited", "Message", "OutgoingMessage", "Published", "Reply", "ScheduledMessage",
    "Delays", "ExponentialBackoff", "FixedDelay", "NoRetry", "RetryOn",
    "Delivery", "pause", "reset", "resume", "apublish", "publish", "publish_many", "purge", "redrive", "subscribe",
    "unsubscribe",
    "Released", "release", "arequest", "request", "cancel", "reschedule", "scheduled", "Subscription", "Topic",
    "consumer",
    "__version__",
]  # fmt: skip

_MODULES = {
    "protocol.delivery": ["Delivery"],
    "service.group_positions": ["pause", "reset", "resume"],
    "service.publish": ["apublish", "publish", "publish_many"],
    "service.redrive": ["purge", "redrive"],
    "service.registration": ["subscribe", "unsubscribe"],
    "service.releasing": ["Released", "release"],
    "service.requesting": ["arequest", "request"],
    "service.scheduling": ["cancel", "reschedule", "scheduled"],
    "service.subscription": ["Subscription"],
    "service.topics": ["Topic"],
    "workers.registry": ["consumer"],
}


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
