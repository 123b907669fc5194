"""``runconsumer`` with something done before. Usage: ``python -m tests.features.processes.forking MODE ARGUMENT…``.

``crash``: each child ends before its worker starts. ``connections``: print the open connections before each fork.
``tracer``: set up a tracer that prints its spans after an hour.
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line
from django.db import connections
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter


def crash() -> None:
    os._exit(9)


def count_connections() -> None:
    opened = [one.alias for one in connections.all(initialized_only=True) if one.connection is not None]
    print(f"open connections: {opened}", flush=True)


def set_up_tracer() -> None:
    provider = TracerProvider()
    provider.add_span_processor(
        BatchSpanProcessor(ConsoleSpanExporter(), schedule_delay_millis=3_600_000, max_export_batch_size=500)
    )
    trace.set_tracer_provider(provider)


if __name__ == "__main__":
    match sys.argv[1]:
        case "crash":
            os.register_at_fork(after_in_child=crash)
        case "connections":
            os.register_at_fork(before=count_connections)
        case "tracer":
            set_up_tracer()
    execute_from_command_line(["manage.py", "runconsumer", *sys.argv[2:]])
