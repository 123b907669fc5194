"""Parts that all pages of the admin share: lists, links, permissions, operations with confirmation, display of values.

It imports ``tasks``, ``stats``, ``service`` and lower layers.
"""
