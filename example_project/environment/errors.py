"""Errors of the environment. Their texts are for users."""

from __future__ import annotations


class EnvironmentProblem(Exception):
    """A requirement is not available. The text says which one, and what to do."""


class CommandFailed(EnvironmentProblem):
    """A program failed. The text holds the end of its output."""


class ServerFailed(EnvironmentProblem):
    """A database server did not start, or did not stay alive."""
