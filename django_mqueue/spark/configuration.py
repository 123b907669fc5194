"""What must not stand in Spark's configuration, which Spark writes down and shows: a secret."""

from __future__ import annotations

from collections.abc import Iterable

from .connecting import PASSWORD
from .errors import OptionError

SECRET = (PASSWORD, "DATABASE_URL")
"""Variables of the environment that hold the password: the second one where a project's settings read it."""

NAMED_ONLY = ".secretKeyRef."
"""In the keys by which Kubernetes is told where a variable's value is: the value given there is two names."""


def check_configuration(keys: Iterable[str]) -> None:
    """Raise ``OptionError`` for the key of a setting that would hold the password; its value is not repeated."""
    for key in keys:
        name = next((name for name in SECRET if name in key), None)
        if name is not None and NAMED_ONLY not in key:
            raise OptionError(
                f"{key}: Spark writes its configuration down and shows it. Let the cluster set {name} in the"
                " environment of executors, or give them a file with the password (--password-file, or the option"
                " 'passwordFile')"
            )
