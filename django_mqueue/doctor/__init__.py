"""``manage.py mqueue doctor`` and ``mqueue blockers``: what is wrong with the server and the queue's tables.

``checks.py`` reports some of these findings as system checks.
"""
