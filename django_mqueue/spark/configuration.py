"""Keep secrets out of Spark's configuration, which Spark logs and shows in its web pages."""

from __future__ import annotations

from collections.abc import Iterable

from .connecting import PASSWORD
from .errors import OptionError

SECRET = (PASSWORD, "DATABASE_URL")
"""Environment variables that hold the password. The second one is for projects whose settings read it."""

NAMED_ONLY = ".secretKeyRef."
"""A part of those Kubernetes keys whose value says where the secret is. The value is two names, no secret."""


def check_configuration(keys: Iterable[str]) -> None:
    """Raise ``OptionError`` for the key of a setting that would hold the password.

    The error does not repeat the value of the setting.
    """
    for key in keys:
        name = next((name for name in SECRET if name in key), None)
        if name is not None and NAMED_ONLY not in key:
            raise OptionError(
                f"{key}: Spark stores and shows its configuration. Let the cluster set {name} in the environment of"
                " executors, or give them a file with the password (--password-file, or the option 'passwordFile')"
            )
