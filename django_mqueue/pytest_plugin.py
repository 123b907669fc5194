"""pytest's fixtures, there wherever the package is installed (entry point ``pytest11``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .messages import Message


@pytest.fixture
def mqueue_drain(db: None) -> Callable[..., list[Message]]:
    """``django_mqueue.testing.drain``: run handlers until nothing is deliverable."""
    from .testing import drain

    return drain


@pytest.fixture
def mqueue_requests_answered(db: None) -> Iterator[None]:
    """``django_mqueue.testing.requests_answered`` around the test."""
    from .testing import requests_answered

    with requests_answered():
        yield


@pytest.fixture
def mqueue_published(db: None) -> Callable[..., list[Message]]:
    """``django_mqueue.testing.published``: what the test has published."""
    from .testing import published

    return published
