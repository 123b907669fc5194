"""Reading with ``format("mqueue")``. ``source`` is the entry point of Spark; ``reading`` runs on executors."""
