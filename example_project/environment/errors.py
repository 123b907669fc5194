"""What can go wrong, told to a person."""

from __future__ import annotations


class EnvironmentProblem(Exception):
    """Something that is needed cannot be had. The text says what, and what to do."""


class CommandFailed(EnvironmentProblem):
    """A program ended badly; the text holds the end of what it wrote."""


class ServerFailed(EnvironmentProblem):
    """A database server did not start, or did not stay."""
