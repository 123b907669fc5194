"""Charts as SVG, and text that is safe on pages and terminals, for the admin, reports and commands.

Its modules contain pure functions. It imports ``policy`` and Django's utilities, and nothing of ``django.db``.
"""
