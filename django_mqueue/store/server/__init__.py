"""The server's variables, privileges, tables, sessions and locks. For operators, not for workers.

The statements that test privileges are only explained, never executed.
It imports other modules of ``store``, which never import it.
"""
