"""Programs that measure, on a private server or a given one.

They are not tests, but tests use some of their helpers.
"""
