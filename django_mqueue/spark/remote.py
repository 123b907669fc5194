"""Check a Spark Connect server: the packages that its client needs, and that the server answers."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import NoSpark

PATIENCE = 15.0
"""Seconds in which a server must answer. PySpark itself would try for ten minutes without a message."""


def check_client() -> None:
    """Raise ``NoSpark`` if a package is missing that a client of Spark Connect needs."""
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise NoSpark(f"Spark Connect: {module} is not installed: pip install 'pyspark[connect]'")


def check_server(url: str) -> None:
    """Raise ``NoSpark`` if no server answers at that ``sc://`` URL. PySpark reports an invalid URL."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=PATIENCE)
        except grpc.FutureTimeoutError:
            raise NoSpark(
                f"no Spark Connect server answers at {builder.endpoint} within {PATIENCE:g} s: check that it runs"
                f" there, and that it expects a connection {'with' if builder.secure else 'without'} TLS"
                " (;use_ssl=true)"
            ) from None
