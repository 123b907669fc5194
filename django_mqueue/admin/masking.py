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


def as_seen(request: HttpRequest, test: Callable[[Inspected], bool]) -> Callable[[Inspected], bool]:
    """Return a filter that is given what the user may see of each message."""
    return test if may(request, "unmask_message") else lambda message: test(masked(message))


def masked(message: Inspected) -> Inspected:
    """Return the message with the payload, headers and errors that the masks of its topics give back.

    A dead letter also has the mask of the topic that its row names: its own topic may have an ending that the settings
    no longer know. A mask that fails, or gives back what cannot be shown, hides all three.
    """
    topics = {conf.original_topic(topic) for topic in (message.original_topic, message.topic) if topic}
    try:
        masks = {
            mask: topic for topic in sorted(topics, reverse=True) if (mask := conf.mask(topic)) is not None
        }
        if masks and isinstance(message.payload, Cut):
            return _hidden(message, TOO_LONG)
        for mask, topic in masks.items():
            message = _taken(message, mask(replace(message, topic=topic)))
        return message
    except Exception as error:  # Whatever the project's function does. Its text may hold what it is to hide.
        logger.error("The mask of topic %r failed: %s", message.topic, type(error).__name__)
        return _hidden(message, FAILED)


def has_mask(topic: str) -> bool:
    """Return whether the topic's messages are masked for users without the right to see everything."""
    try:
        return conf.mask(topic) is not None
    except Exception:  # It cannot be had: ``masked`` hides all.
        return True


def may_hold_masked(topic: str) -> bool:
    """Return whether the topic has a mask, or may hold dead letters of a topic that has one.

    By its name alone: an earlier ``DLQ_SUFFIX`` made it longer than the name of the original topic.
    """
    endings = range(1, min(conf.DLQ_SUFFIX_MAX, len(topic) - 1) + 1)
    return has_mask(topic) or any(has_mask(topic[:-cut]) for cut in endings)


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
