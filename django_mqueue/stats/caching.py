"""Short-lived answers in Django's cache, for pages that many users open and that reload by themselves."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache import cache

Answer = TypeVar("Answer")
logger = logging.getLogger("django_mqueue")
VERSION = 5
"""The version of the cached classes. Increase it after a change of their fields."""


def cached(using: str, question: tuple[Any, ...], max_age: float, ask: Callable[[], Answer]) -> Answer:
    """Return the cached answer to a question about a database, or call ``ask`` and cache its answer.

    ``max_age``: the seconds for which an answer is cached; 0: never use the cache. Only numbers and names are cached,
    never payloads. If the cache fails, the error is logged, and ``ask`` is called.
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
    # The question is cached with its answer, so that a value that other code wrote under the key is ignored.
    if isinstance(kept, tuple) and len(kept) == 2 and kept[0] == question:
        found: Answer = kept[1]
        return found
    answer = ask()
    try:
        cache.set(key, (question, answer), max_age)
    except Exception:
        logger.warning("the cache failed; the answer is not kept", exc_info=True)
    return answer
