"""Benchmarks on a private server, or on a given one. Tests use some of their helpers."""
