"""Run ``python -m django_mqueue.spark VERB …``. ``spark-submit`` can also run this file by its path."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by its path: import the package, not the modules of this folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from django_mqueue.spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
