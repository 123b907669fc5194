"""Short-lived answers in Django's cache, for pages that many users open and that reload by themselves."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.cache import cache

Result = TypeVar("Result")
logger = logging.getLogger("django_mqueue")
VERSION = 5
"""The version of the cached classes. Increase it after a change of their fields."""


def cached(using: str, query: tuple[Any, ...], max_age: float, compute: Callable[[], Result]) -> Result:
    """Return the cached answer to a question about a database, or call ``compute`` and cache its answer.

    ``max_age``: the seconds for which an answer is cached; 0: never use the cache. Only numbers and names are cached,
    never payloads. If the cache fails, the error is logged, and ``compute`` is called.
    """
    if max_age <= 0:
        return compute()
    digest = hashlib.sha256(repr((VERSION, using, *query)).encode("utf-8", "surrogatepass")).hexdigest()
    key = f"django_mqueue:{digest}"
    try:
        stored = cache.get(key)
    except Exception:
        logger.warning("cache failed: the figures are read from the database", exc_info=True)
        return compute()
    # The question is cached with its answer, so that a value that other code wrote under the key is ignored.
    if isinstance(stored, tuple) and len(stored) == 2 and stored[0] == query:
        found: Result = stored[1]
        return found
    result = compute()
    try:
        cache.set(key, (query, result), max_age)
    except Exception:
        logger.warning("cache failed: the figures are not cached", exc_info=True)
    return result
