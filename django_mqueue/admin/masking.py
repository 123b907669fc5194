"""What of a message a user may see: payloads, headers and errors as the topic's ``MASK`` gives them back."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest

from .. import conf
from ..policy.history import Cut, FailedAttempt, Inspected
from .payloads import Withheld
from .views import may

logger = logging.getLogger("django_mqueue")


FAILED = Withheld("masked: the mask failed")
TOO_LONG = Withheld("masked: too long to be masked here")


def sees_all(request: HttpRequest, topic: str) -> bool:
    """Whether nothing of a topic's messages is hidden from the user: they have the right, or there is no mask."""
    return may(request, "unmask_message") or not has_mask(topic)


def shown(request: HttpRequest, message: Inspected) -> Inspected:
    """The message as the user may see it. ``message`` has its whole payload, or what is longer is withheld."""
    return message if may(request, "unmask_message") else masked(message)


def as_seen(
    request: HttpRequest, topic: str, test: Callable[[Inspected], bool]
) -> Callable[[Inspected], bool]:
    """A filter that knows no more than the user: it is given what they may see."""
    return test if sees_all(request, topic) else lambda message: test(masked(message))


def masked(message: Inspected) -> Inspected:
    """As the mask of its topic gives it back: of that payload, headers and errors are taken, and nothing else.

    A mask that fails, or gives back what cannot be shown, hides all of them.
    """
    try:
        mask = conf.mask(message.topic)
        if mask is None:
            return message
        if isinstance(message.payload, Cut):
            return _hidden(message, TOO_LONG)
        return _taken(message, mask(replace(message, topic=conf.original_topic(message.topic))))
    except Exception as error:  # Whatever the project's function does. Its text may hold what it is to hide.
        logger.error("The mask of topic %r failed: %s", message.topic, type(error).__name__)
        return _hidden(message, FAILED)


def has_mask(topic: str) -> bool:
    """Whether the topic's messages are masked for who does not have the right."""
    try:
        return conf.mask(topic) is not None
    except Exception:  # It cannot be had: ``masked`` hides all.
        return True


def _taken(message: Inspected, given: Any) -> Inspected:
    if not isinstance(given, Inspected):
        raise TypeError("MASK must give back the message")
    if not isinstance(given.payload, bytes):
        json.dumps(given.payload, cls=DjangoJSONEncoder)
    if not isinstance(given.headers, Mapping):
        raise TypeError("the headers that MASK gives back must be a mapping")
    json.dumps(dict(given.headers), cls=DjangoJSONEncoder)
    errors = tuple(given.errors)
    if not all(isinstance(one, FailedAttempt) and isinstance(one.error, str) for one in errors):
        raise TypeError("the errors that MASK gives back must be a message's errors")
    return replace(message, payload=given.payload, headers=dict(given.headers), errors=errors)


def _hidden(message: Inspected, text: Withheld) -> Inspected:
    errors = tuple(replace(one, error=text) for one in message.errors)
    return replace(message, payload=text, headers={}, errors=errors)
