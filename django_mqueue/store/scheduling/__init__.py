"""Scheduled messages and parked retries: rows that wait outside the log until they are due.

It imports ``store`` and ``policy``.
"""
