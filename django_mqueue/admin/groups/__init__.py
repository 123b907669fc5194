"""Pages of consumer groups: positions, partitions, subscribers, leases, and operations on groups.

It imports ``admin.base``, ``admin.jobs``, ``admin.messages``, ``admin.topics``, ``inspect``, ``stats``, ``service``
and lower layers.
"""
