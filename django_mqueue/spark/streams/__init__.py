"""Streaming queries, also as consumer groups. ``stream_reader`` is the entry point of Spark."""
