"""Decisions and checks that use only their arguments: no database, no settings and no clock.

They cover retries, quarantine, fair shares, batches, names, durations, encoding, filters and queries of messages. Only
the function that makes new ids reads a clock, because an id contains the time.
It imports the exceptions, ``messages`` and ``results``, and nothing of ``django.db``.
"""
