"""The server's variables, privileges, tables, sessions and locks. For operators, not for workers.

Statements with a condition of their own that is false (``WHERE 1 = 0``) are never run, only explained.
"""
