from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_mqueue import Subscription
from tests.support.fixtures import with_settings

from .workers import STILL

still = with_settings(autouse=False, MQUEUE=STILL)
"""No periodic work: discovery, lease renewal and deletion run only when the test calls them."""


@pytest.fixture
def worker() -> Iterator[Subscription]:
    with Subscription("orders", "g") as subscription:
        yield subscription
