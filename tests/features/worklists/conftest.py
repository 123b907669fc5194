from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import conf
from django_mqueue.workers.registry import unregister
from django_mqueue.worklists import Worklist, registry, worklist
from django_mqueue.worklists.preparing import prepare
from tests.support.processes import FAST

from . import lists

Declare = Callable[..., type[Worklist]]


@pytest.fixture
def declare(db: None) -> Iterator[Declare]:
    """Return a function that declares ``Refunds``, or another class, with options, and does what ``migrate`` does."""
    declared: list[type[Worklist]] = []
    lists.fails.clear()
    lists.calls.clear()

    def make(cls: type[Worklist] = lists.Refunds, name: str = "refunds", **options: Any) -> type[Worklist]:
        made = worklist(name, **{"source": lists.SOURCE, **options})(type(cls.__name__, (cls,), {}))
        declared.append(made)
        prepare(conf.database())
        return made

    with override_settings(MQUEUE=FAST):
        yield make
    for one in declared:
        registry.remove(one.name)
        for topic in (one.options.source, registry.topic_of(one.name)):
            unregister(topic, registry.topic_of(one.name))


@pytest.fixture
def refunds(declare: Declare) -> type[Worklist]:
    """Declare the worklist of refunds, with a state for review."""
    return declare(states=["review"])
