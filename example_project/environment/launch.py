"""Run a launcher and exit with its code. Problems that the user can fix are printed without a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from .errors import EnvironmentProblem
from .processes import exit_on_signals
from .say import complain


def launch(main: Callable[[list[str]], int]) -> NoReturn:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # Cached bytecode saves a second in each process.
    exit_on_signals()
    try:
        sys.exit(main(sys.argv[1:]))
    except EnvironmentProblem as problem:
        complain(str(problem))
        sys.exit(1)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(130)
