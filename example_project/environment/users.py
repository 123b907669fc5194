"""The user that a server runs as."""

from __future__ import annotations

import os
import pwd


def as_me() -> list[str]:
    """Return the option that names the user: servers refuse to run as root without it."""
    return [f"--user={pwd.getpwuid(os.geteuid()).pw_name}"] if os.geteuid() == 0 else []
