"""Pages of consumer groups: positions, partitions, subscribers, leases, and operations on groups.

It imports ``admin.base``, ``stats``, ``browse``, ``service`` and lower layers.
"""
