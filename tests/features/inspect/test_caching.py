"""Django's cache keeps numbers for a moment, and nothing else. A missing or broken cache does no harm."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.test import override_settings

from django_mqueue import publish, subscribe
from django_mqueue.inspect import (
    group_figures,
    holds,
    lag,
    latency,
    rates,
    subscribers,
    topic_figures,
    topics,
)
from django_mqueue.stats.caching import cached

pytestmark = pytest.mark.django_db(transaction=True)


class Broken(BaseCache):
    def __init__(self, *_: Any) -> None:
        super().__init__({})

    def get(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError("no cache today")

    set = get


class Deaf(LocMemCache):
    """A cache that refuses every write."""

    def set(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError("no room")


def caches(backend: str) -> override_settings:
    return override_settings(CACHES={"default": {"BACKEND": backend, "LOCATION": backend}})


LOCAL = "django.core.cache.backends.locmem.LocMemCache"


def pending(max_age: float = 0) -> int:
    return group_figures([("orders", "g")], max_age=max_age)["orders", "g"].pending.value


def test_an_answer_is_kept_for_those_who_take_an_old_one() -> None:
    subscribe("orders", "g")
    publish("orders", 1)
    with caches(LOCAL):
        cache.clear()
        assert pending(max_age=60) == 1
        publish("orders", 2)
        assert pending(max_age=60) == 1
        assert pending() == 2
        assert group_figures([("orders", "g")], exact=5, max_age=60)["orders", "g"].pending.value == 2


@pytest.mark.parametrize(
    "backend",
    [
        f"{__name__}.{Broken.__name__}",
        f"{__name__}.{Deaf.__name__}",
        "django.core.cache.backends.dummy.DummyCache",
    ],
)
def test_a_cache_that_fails_or_keeps_nothing_costs_its_use_alone(backend: str) -> None:
    subscribe("orders", "g")
    with caches(backend):
        for count in (1, 2):
            publish("orders", count)
            assert pending(max_age=60) == count


def test_everything_that_is_told_can_be_kept() -> None:
    subscribe("orders", "g")
    publish("orders", {"secret": "x"}, key="secret")
    pair = ("orders", "g")
    with caches(LOCAL):
        cache.clear()
        for ask in (
            lambda: topics(max_age=60), lambda: group_figures([pair], max_age=60),
            lambda: topic_figures(["orders"], max_age=60), lambda: rates([pair, ("orders", None)], max_age=60),
            lambda: latency(*pair, max_age=60), lambda: lag(*pair, max_age=60),
            lambda: holds("orders", max_age=60), lambda: subscribers(*pair, max_age=60),
        ):  # fmt: skip
            assert ask() == ask()


def test_questions_are_told_apart() -> None:
    with caches(LOCAL):
        cache.clear()
        assert cached("default", ("a", "b"), 60, lambda: 1) == 1
        assert cached("default", ("a", "b"), 60, lambda: 2) == 1
        assert cached("other", ("a", "b"), 60, lambda: 3) == 3
        assert cached("default", ("a, b",), 60, lambda: 4) == 4
        assert cached("default", ("\ud800",), 60, lambda: 5) == 5


def test_what_is_no_pair_is_refused() -> None:
    for ask in (group_figures, rates):
        with pytest.raises(TypeError, match="pairs"):
            ask(["orders"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="topic"):
            ask([("orders_scheduled", "g")])
        with pytest.raises(ValueError, match="at most 200 pairs"):
            ask([(f"t{number}", "g") for number in range(201)])
        assert ask([]) == {}
    with pytest.raises(TypeError, match="group"):
        group_figures([("orders", None)])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="topics"):
        topic_figures("orders")
    with pytest.raises(ValueError, match="exact"):
        group_figures([("orders", "g")], exact=10_001)
    with pytest.raises(ValueError, match="span"):
        rates([("orders", "g")], span=32 * 86_400)
    with pytest.raises(ValueError, match="points"):
        rates([("orders", "g")], span=10, points=11)
    assert topic_figures([]) == {}
