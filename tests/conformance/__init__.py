"""Scenarios that any implementation of the promises must pass, written against ``system.System`` alone."""
