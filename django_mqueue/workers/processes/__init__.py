"""The processes of ``runconsumer``: the supervisor, its child processes, and the restart after a change of the code.

Each child process runs one worker.
It imports ``workers``, ``service`` and lower layers.
"""
