"""What users install."""

from __future__ import annotations

import django_mqueue


def test_the_package_has_a_version() -> None:
    assert django_mqueue.__version__.count(".") == 2
