"""Mask messages for users who may not see the hidden parts."""

from __future__ import annotations

from django.http import HttpRequest

from ...browse.masking import has_mask, masked
from ...results import Inspected
from ..base.urls import may


def sees_all(request: HttpRequest, topic: str) -> bool:
    """Return whether the user sees a topic's messages unmasked: by permission, or because the topic has no mask."""
    return may(request, "unmask_message") or not has_mask(topic)


def masked_for(request: HttpRequest, message: Inspected) -> Inspected:
    """Return the message as the user may see it. If the payload was cut, a mask hides payload, headers and errors."""
    return message if may(request, "unmask_message") else masked(message)
