"""Charts as SVG, and payloads as text, for the admin, reports and commands.

Its modules contain pure functions. They import ``policy``, ``printing``, ``results`` and Django's utilities, and
nothing of ``django.db``.
"""
