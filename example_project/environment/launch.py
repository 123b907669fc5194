"""The end of a launcher: an exit code, and no traceback for problems that the user can fix."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from .errors import EnvironmentProblem
from .processes import end_cleanly_when_told
from .say import complain


def launch(main: Callable[[list[str]], int]) -> NoReturn:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Saves a second in each of hundreds of processes.
    end_cleanly_when_told()
    try:
        sys.exit(main(sys.argv[1:]))
    except EnvironmentProblem as problem:
        complain(str(problem))
        sys.exit(1)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(130)
