"""Queries that only read, for numbers and for people: counts, pages of rows, names in an index.

Each reads a bounded number of rows by index. It imports ``store.connection`` and ``policy``.
"""
