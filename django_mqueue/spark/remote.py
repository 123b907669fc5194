"""A Spark Connect server: what its client needs besides, and whether anybody answers there."""

from __future__ import annotations

from importlib.util import find_spec

from .errors import NoSpark

PATIENCE = 15.0
"""Seconds in which a server has to answer. PySpark itself would ask for ten minutes, and say nothing meanwhile."""


def check_client() -> None:
    """Raise ``NoSpark`` without what a client of Spark Connect needs besides."""
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise NoSpark(f"Spark Connect: {module} is not installed: pip install 'pyspark[connect]'")


def check_server(url: str) -> None:
    """Raise ``NoSpark`` where no server answers at that ``sc://`` URL. What is wrong with the URL PySpark says."""
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=PATIENCE)
        except grpc.FutureTimeoutError:
            raise NoSpark(
                f"no Spark Connect server answers at {builder.endpoint} within {PATIENCE:g} s: does it run there, and"
                f" is it to be asked {'with' if builder.secure else 'without'} TLS (;use_ssl=true)?"
            ) from None
