"""Pages of topics: the overview, alarms, charts, and the operators' actions.

It imports ``admin.base``, ``inspect``, ``stats``, ``service`` and lower layers.
"""
