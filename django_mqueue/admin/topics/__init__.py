"""Pages of topics: the overview, alarms, charts, and the operators' actions.

It imports ``admin.base``, ``admin.groups``, ``stats`` and lower layers.
"""
