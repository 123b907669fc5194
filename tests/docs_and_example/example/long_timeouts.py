"""``manage.py`` of the example with long timeouts: ``python -m tests.docs_and_example.example.long_timeouts shop``.

On a slow machine, the shop's worker may need minutes until it replies to the first request.
"""

from __future__ import annotations

import sys
from functools import partial
from unittest.mock import patch

import django
from django.core.management import execute_from_command_line

from tests.support.waiting import PATIENCE

TIMEOUT = 4 * PATIENCE


def main() -> None:
    django.setup()
    from django_mqueue import request
    from example_project.shop import orders
    from example_project.shop.management.commands import shop

    patch.object(orders, "request", partial(request, timeout=TIMEOUT)).start()
    shop.TIMEOUT = TIMEOUT
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
