"""Pages of topics: the overview, alarms, charts, and the operators' actions.

It imports ``admin.base``, ``stats`` and lower layers. Only ``model_admin`` imports ``admin.groups``.
"""
