"""The server's variables, privileges, tables, sessions and locks. For operators, not for workers.

Statements with ``WHERE 1 = 0`` are only explained, and never executed.
"""
