"""Pages of topics: the overview, alarms, charts, and what operators did.

It imports ``admin.base``, ``stats``, ``browse``, ``service`` and lower layers.
"""
