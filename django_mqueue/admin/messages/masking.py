"""Mask messages for users: payloads, headers and errors as the topic's ``MASK`` returns them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ... import conf
from ...policy.message_query import Cut, FailedAttempt, Inspected
from ..base.display import Text
from ..base.urls import may
from .payloads import Withheld

logger = logging.getLogger("django_mqueue")

FAILED = _("masked: the mask failed")
TOO_LONG = _("masked: too long to be masked here")


def sees_all(request: HttpRequest, topic: str) -> bool:
    """Return whether the user sees a topic's messages unmasked: by permission, or because the topic has no mask."""
    return may(request, "unmask_message") or not has_mask(topic)


def shown(request: HttpRequest, message: Inspected) -> Inspected:
    """Return the message as the user may see it. If the payload was cut, a mask hides payload, headers and errors."""
    return message if may(request, "unmask_message") else masked(message)


def as_seen(request: HttpRequest, test: Callable[[Inspected], bool]) -> Callable[[Inspected], bool]:
    """Return a filter that tests the parts of a message that the user may see."""
    return test if may(request, "unmask_message") else lambda message: test(masked(message))


def masked(message: Inspected) -> Inspected:
    """Return the message with the payload, headers and errors that the masks of its topics return.

    For a dead letter, the mask of the original topic in its row also applies: the settings may no longer contain the
    suffix of its dead-letter topic. If a mask fails, or returns a value that cannot be shown, all three are hidden.
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
    except Exception as error:  # The mask may raise anything. The text may hold secrets.
        logger.error("mask failed: topic %r: %s", message.topic, type(error).__name__)
        return _hidden(message, FAILED)


def has_mask(topic: str) -> bool:
    """Return whether the topic's messages are masked for users without the permission ``unmask_message``."""
    try:
        return conf.mask(topic) is not None
    except Exception:  # The mask cannot be loaded: ``masked`` hides everything.
        return True


def may_hold_masked(topic: str) -> bool:
    """Return whether the topic has a mask, or may hold dead letters of a topic that has one.

    Any beginning of the name may be the original topic: the rest may be an earlier ``DLQ_SUFFIX``.
    """
    endings = range(1, min(conf.DLQ_SUFFIX_MAX, len(topic) - 1) + 1)
    return has_mask(topic) or any(has_mask(topic[:-cut]) for cut in endings)


def _taken(message: Inspected, given: Any) -> Inspected:
    if not isinstance(given, Inspected):
        raise TypeError("MASK must return the message")
    if not isinstance(given.payload, bytes):
        json.dumps(given.payload, cls=DjangoJSONEncoder)
    if not isinstance(given.headers, Mapping):
        raise TypeError("the headers that MASK returns must be a mapping")
    json.dumps(dict(given.headers), cls=DjangoJSONEncoder)
    errors = tuple(given.errors)
    if not all(isinstance(one, FailedAttempt) and isinstance(one.error, str) for one in errors):
        raise TypeError("the errors that MASK returns must be a message's errors")
    return replace(message, payload=given.payload, headers=dict(given.headers), errors=errors)


def _hidden(message: Inspected, text: Text) -> Inspected:
    withheld = Withheld(text)
    errors = tuple(replace(one, error=withheld) for one in message.errors)
    return replace(message, payload=withheld, headers={}, errors=errors)
