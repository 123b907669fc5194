"""Scenarios that any implementation of the promises must pass. They use only ``system.System``."""
