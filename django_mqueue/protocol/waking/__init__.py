"""Wake sleeping workers after a commit, so that they need not poll often.

A wake-up only shortens a wait. It carries no data, and may be lost, late, unnecessary or repeated. Each process that
was woken reads the tables, and each process also polls. Datagrams wake processes on the same host. Connections that
sleep in the server also wake processes on other hosts.
It imports the tailer of its parent package, the connections of ``store``, and lower layers.
"""
