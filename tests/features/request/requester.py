"""A process that sends a request: ``python -m tests.features.request.requester TOPIC SECONDS``."""

from __future__ import annotations

import sys

import django


def main(topic: str, seconds: float) -> None:
    django.setup()
    from django_mqueue import request

    print(request(topic, {"n": 0}, timeout=seconds), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
