"""Hide parts of messages: payloads, headers and errors as the topic's ``MASK`` returns them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils.translation import gettext_lazy as _

from .. import conf
from ..drawing.payload_texts import Withheld as Withheld
from ..policy.names import ACTIONS_TOPIC, OPERATIONS_TOPIC, possible_originals
from ..results import Cut, FailedAttempt, Inspected

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

logger = logging.getLogger("django_mqueue")

FAILED = _("masked: the mask failed")
TOO_LONG = _("masked: too long to be masked here")
INTERNAL = _("masked: a record of the queue")
OWN_TOPICS = frozenset({ACTIONS_TOPIC, OPERATIONS_TOPIC})
"""Topics of the queue's own records. They hold reasons of operators, and filters that may contain masked values."""
MASKABLE_BYTES = 4 * 1_048_576
"""Maximum bytes of a payload that is read whole in order to mask it, for one message."""
MASKABLE_BYTES_IN_LIST = 16_384
"""Maximum bytes of a payload that is read in order to mask it, for a list."""


class InvalidMask(Exception):
    """The result of a mask is not valid. The text names the wrong part, and holds no secrets."""


def masked(message: Inspected) -> Inspected:
    """Return the message with the payload, headers and errors that the masks of its topics return.

    For a dead letter, the mask of the original topic in its row also applies: the settings may no longer contain the
    suffix of its dead-letter topic. All three are hidden if a mask fails or returns a value that cannot be shown,
    in ``OWN_TOPICS``, and in topics that repeat data of a masked topic.
    """
    topics = {conf.original_topic(topic) for topic in (message.original_topic, message.topic) if topic}
    if OWN_TOPICS & topics or any(
        conf.is_masked(conf.repeats[topic]) for topic in topics & conf.repeats.keys()
    ):
        return _hidden(message, INTERNAL)
    try:
        masks = {
            mask: topic for topic in sorted(topics, reverse=True) if (mask := conf.mask(topic)) is not None
        }
        if masks and isinstance(message.payload, Cut):
            return _hidden(message, TOO_LONG)
        for mask, topic in masks.items():
            message = _taken(message, mask(replace(message, topic=topic)))
        return message
    except InvalidMask as error:
        logger.error("mask failed: topic %r: %s", message.topic, error)
    except Exception as error:  # The mask may raise anything. The text may hold secrets.
        logger.error("mask failed: topic %r: %s", message.topic, type(error).__name__)
    return _hidden(message, FAILED)


def has_mask(topic: str) -> bool:
    """Return whether the topic's messages are masked for users without the permission ``unmask_message``."""
    return topic in OWN_TOPICS or conf.is_masked(topic)


def may_hold_masked(topic: str) -> bool:
    """Return whether the topic has a mask, or may hold dead letters of a topic that has one.

    Any beginning of the name may be the original topic: the rest may be an earlier ``DLQ_SUFFIX``.
    """
    return any(map(has_mask, (topic, *possible_originals(topic))))


def _taken(message: Inspected, given: Any) -> Inspected:
    if not isinstance(given, Inspected):
        raise InvalidMask("MASK must return the message")
    if not isinstance(given.payload, bytes):
        json.dumps(given.payload, cls=DjangoJSONEncoder)
    if not isinstance(given.headers, Mapping):
        raise InvalidMask("the headers that MASK returns must be a mapping")
    json.dumps(dict(given.headers), cls=DjangoJSONEncoder)
    errors = tuple(given.errors)
    if not all(isinstance(one, FailedAttempt) and isinstance(one.error, str) for one in errors):
        raise InvalidMask("the errors that MASK returns must be a message's errors")
    return replace(message, payload=given.payload, headers=dict(given.headers), errors=errors)


def _hidden(message: Inspected, text: StrOrPromise) -> Inspected:
    withheld = Withheld(text)
    errors = tuple(replace(one, error=withheld) for one in message.errors)
    return replace(message, payload=withheld, headers={}, errors=errors)
