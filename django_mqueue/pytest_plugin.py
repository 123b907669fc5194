"""Fixtures for pytest, available wherever the package is installed (entry point ``pytest11``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .messages import Message


@pytest.fixture
def mqueue_drain(db: None) -> Callable[..., list[Message]]:
    """Return ``django_mqueue.testing.drain``, which runs handlers until nothing is deliverable."""
    from .testing import drain

    return drain


@pytest.fixture
def mqueue_requests_answered(db: None) -> Iterator[None]:
    """Run the test inside ``django_mqueue.testing.requests_answered``."""
    from .testing import requests_answered

    with requests_answered():
        yield


@pytest.fixture
def mqueue_published(db: None) -> Callable[..., list[Message]]:
    """Return ``django_mqueue.testing.published``, which lists the messages that the test has published."""
    from .testing import published

    return published
