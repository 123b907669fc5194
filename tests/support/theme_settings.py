"""Settings of a server whose admin has a theme: the app ``TEST_THEME``, under the policy ``TEST_POLICY``."""

from __future__ import annotations

from tests import content_security
from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS, env

DATABASES = {"default": DATABASES["default"]}  # Tests do not always create the other one.
content_security.POLICY = env.str("TEST_POLICY")
INSTALLED_APPS = [env.str("TEST_THEME"), *INSTALLED_APPS, "django.contrib.staticfiles"]
