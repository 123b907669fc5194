"""Queries that only read, for monitoring and browsing: counts, pages of rows, names in an index.

Each reads a bounded number of rows by index. It imports ``policy`` and other modules of ``store``.
"""
