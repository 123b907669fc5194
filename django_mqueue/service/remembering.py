"""Answers kept for a moment in Django's cache, for pages that many look at and that look again by themselves."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache import cache

Answer = TypeVar("Answer")
logger = logging.getLogger("django_mqueue")
VERSION = 4
"""Of the classes that are kept: another after a change of their fields."""


def remembered(using: str, question: tuple[Any, ...], max_age: float, ask: Callable[[], Answer]) -> Answer:
    """The answer to a question to a database, asked now if none is kept; ``max_age`` (seconds) 0: always now.

    Only numbers and names are kept, never payloads. A cache that fails costs its use, no more.
    """
    if max_age <= 0:
        return ask()
    digest = hashlib.sha256(repr((VERSION, using, *question)).encode("utf-8", "surrogatepass")).hexdigest()
    key = f"django_mqueue:{digest}"
    try:
        kept = cache.get(key)
    except Exception:
        logger.warning("the cache failed; asking the database", exc_info=True)
        return ask()
    # The question beside its answer: a key that another wrote is no answer.
    if isinstance(kept, tuple) and len(kept) == 2 and kept[0] == question:
        found: Answer = kept[1]
        return found
    answer = ask()
    try:
        cache.set(key, (question, answer), max_age)
    except Exception:
        logger.warning("the cache failed; the answer is not kept", exc_info=True)
    return answer
