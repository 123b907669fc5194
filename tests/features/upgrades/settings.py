"""Settings of processes with earlier code: without the apps that this code does not have."""

from __future__ import annotations

from importlib.util import find_spec

from tests.support.worker_settings import *  # noqa: F403
from tests.support.worker_settings import INSTALLED_APPS as ALL_APPS

INSTALLED_APPS = [app for app in ALL_APPS if find_spec(app)]
