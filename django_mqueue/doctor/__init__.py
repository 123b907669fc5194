"""``manage.py mqueue doctor`` and ``mqueue blockers``: what is wrong with the server and the queue's tables.

The app's system checks report some of these findings.
It imports ``stats``, ``store`` and lower layers.
"""
