"""Wake sleeping workers after a commit, so that they need not poll often.

A wake-up only shortens a wait. It carries no data, and may be lost, late, unnecessary or repeated. Each
process that was woken reads the tables, and each process also polls.

* ``sockets``: wakes processes on the same host, by datagrams.
* ``sleepers``, ``wakers``: also wake processes on other hosts, through the server (``store.connection.wakeups``).
* ``commits``: calls both after a commit.
"""
