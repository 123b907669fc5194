"""The management commands ``runconsumer``, ``mqueue`` and ``mqueue_spark``, one module for each.

They parse arguments and call other packages. They may import every package except ``admin`` and ``templatetags``, and
import packages of optional parts (metrics, jobs, worklists) only when a caller uses them.
"""
