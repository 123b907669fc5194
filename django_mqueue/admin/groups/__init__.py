"""Pages of consumer groups: positions, partitions, subscribers, leases, and operations on groups.

It imports ``admin.base``, ``admin.messages``, ``stats``, ``service`` and lower layers. ``model_admin`` also imports
``admin.jobs``, and all of ``admin.topics`` except its ``model_admin``.
"""
