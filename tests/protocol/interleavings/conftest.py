from __future__ import annotations

from tests.support.fixtures import with_settings

from .workers import STILL

still = with_settings(autouse=False, MQUEUE=STILL)
"""No periodic work: discovery, lease renewal and deletion run only when the test calls them."""
