"""Queries for workers, monitoring and browsing. Only ``job_rows.change_note`` writes.

Each reads a bounded number of rows by index. The package imports ``policy`` and other modules of ``store``.
"""
