"""A distributed message queue in the MySQL or MariaDB database of a Django project.

All public names can be imported from here. Each is loaded on first use, so that this package can be in
``INSTALLED_APPS`` before Django's app registry is ready.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exceptions import BatchFailure as BatchFailure
    from .exceptions import BrokenTransaction as BrokenTransaction
    from .exceptions import ClosedSubscription as ClosedSubscription
    from .exceptions import DuplicateMessage as DuplicateMessage
    from .exceptions import FencedSubscription as FencedSubscription
    from .exceptions import GroupActive as GroupActive
    from .exceptions import GroupNotNew as GroupNotNew
    from .exceptions import GroupReadsLog as GroupReadsLog
    from .exceptions import GroupTaken as GroupTaken
    from .exceptions import HandlerError as HandlerError
    from .exceptions import LogGap as LogGap
    from .exceptions import MQueueError as MQueueError
    from .exceptions import NotARequest as NotARequest
    from .exceptions import NotMigrated as NotMigrated
    from .exceptions import NotRegistered as NotRegistered
    from .exceptions import Postpone as Postpone
    from .exceptions import Reject as Reject
    from .exceptions import RequestFailed as RequestFailed
    from .exceptions import RequestTimeout as RequestTimeout
    from .exceptions import Retry as Retry
    from .exceptions import StaleDelivery as StaleDelivery
    from .exceptions import Superseded as Superseded
    from .exceptions import TimeLimitExceeded as TimeLimitExceeded
    from .exceptions import TooManyHanging as TooManyHanging
    from .exceptions import WrongDatabase as WrongDatabase
    from .messages import Message as Message
    from .messages import OutgoingMessage as OutgoingMessage
    from .messages import Published as Published
    from .messages import Reply as Reply
    from .messages import ScheduledMessage as ScheduledMessage
    from .policy.backoff import Delays as Delays
    from .policy.backoff import ExponentialBackoff as ExponentialBackoff
    from .policy.backoff import FixedDelay as FixedDelay
    from .policy.backoff import NoRetry as NoRetry
    from .policy.backoff import RetryOn as RetryOn
    from .protocol.delivery import Delivery as Delivery
    from .service.group_positions import pause as pause
    from .service.group_positions import reset as reset
    from .service.group_positions import resume as resume
    from .service.publish import publish as publish
    from .service.publish import publish_many as publish_many
    from .service.redrive import purge as purge
    from .service.redrive import redrive as redrive
    from .service.registration import subscribe as subscribe
    from .service.registration import unsubscribe as unsubscribe
    from .service.releasing import Released as Released
    from .service.releasing import release as release
    from .service.requesting import arequest as arequest
    from .service.requesting import request as request
    from .service.scheduling import cancel as cancel
    from .service.scheduling import reschedule as reschedule
    from .service.scheduling import scheduled as scheduled
    from .service.subscription import Subscription as Subscription
    from .workers.registry import consumer as consumer

__version__ = "0.1.0"

_HOME = {
    "BatchFailure": "exceptions",
    "BrokenTransaction": "exceptions",
    "ClosedSubscription": "exceptions",
    "Delays": "policy.backoff",
    "Delivery": "protocol.delivery",
    "DuplicateMessage": "exceptions",
    "ExponentialBackoff": "policy.backoff",
    "FencedSubscription": "exceptions",
    "FixedDelay": "policy.backoff",
    "GroupActive": "exceptions",
    "HandlerError": "exceptions",
    "GroupNotNew": "exceptions",
    "GroupReadsLog": "exceptions",
    "GroupTaken": "exceptions",
    "LogGap": "exceptions",
    "MQueueError": "exceptions",
    "Message": "messages",
    "NoRetry": "policy.backoff",
    "NotARequest": "exceptions",
    "NotMigrated": "exceptions",
    "NotRegistered": "exceptions",
    "OutgoingMessage": "messages",
    "Postpone": "exceptions",
    "Published": "messages",
    "Reject": "exceptions",
    "Released": "service.releasing",
    "Reply": "messages",
    "RequestFailed": "exceptions",
    "RequestTimeout": "exceptions",
    "Retry": "exceptions",
    "RetryOn": "policy.backoff",
    "ScheduledMessage": "messages",
    "StaleDelivery": "exceptions",
    "Superseded": "exceptions",
    "Subscription": "service.subscription",
    "TimeLimitExceeded": "exceptions",
    "TooManyHanging": "exceptions",
    "WrongDatabase": "exceptions",
    "cancel": "service.scheduling",
    "arequest": "service.requesting",
    "consumer": "workers.registry",
    "pause": "service.group_positions",
    "publish": "service.publish",
    "publish_many": "service.publish",
    "purge": "service.redrive",
    "redrive": "service.redrive",
    "release": "service.releasing",
    "reschedule": "service.scheduling",
    "request": "service.requesting",
    "reset": "service.group_positions",
    "resume": "service.group_positions",
    "scheduled": "service.scheduling",
    "subscribe": "service.registration",
    "unsubscribe": "service.registration",
}

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
