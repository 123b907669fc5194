"""Writing with ``format("mqueue")``: rows become messages with stable ids. ``sink`` is the entry point."""
