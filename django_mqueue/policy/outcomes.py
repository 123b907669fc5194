"""The outcome of a message that is done for a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HANDLED, SKIPPED, DEAD_LETTERED, REDRIVEN, REMOVED, SET_ASIDE, BEFORE_START, NOT_RECORDED = OUTCOMES = (
    "handled", "skipped", "dead_lettered", "redriven", "removed", "set_aside", "before_start", "not_recorded",
)  # fmt: skip
"""The outcomes of a message:

- ``handled``: a handler acknowledged it.
- ``skipped``: the handler's filter did not match.
- ``dead_lettered``: it is, or was, a dead letter.
- ``redriven``: its dead letter was redriven, or was purged and the message was redelivered.
- ``removed``: an operator removed it.
- ``set_aside``: its retry is, or was, parked.
- ``before_start``: the group began after it.
- ``not_recorded``: the outcome is unknown.
"""

REMOVED_BY_HAND = "removed by hand"
"""The note among the errors of a message that was removed."""
PARKED_AT = 1
"""``invisible_until`` of a message that is done in the log because its retry is parked. No other row has this value."""

HELD_UNTIL = 253_370_764_800_000
"""The due time of a message that an operator holds: the beginning of the year 9999, in epoch milliseconds."""


def outcome(
    state: Mapping[str, Any],
    errors: Sequence[Mapping[str, Any]],
    *,
    has_dead_letter: bool,
    was_redriven: bool,
) -> str:
    """Return the outcome of a message that is acknowledged.

    ``state``: columns of the group's delivery state. ``errors``: its failed attempts. ``has_dead_letter``: its dead
    letter exists. ``was_redriven``: the log holds a later copy of the message for the group.
    """
    if has_dead_letter:
        return DEAD_LETTERED
    if int(state["invisible_until"]) == PARKED_AT:
        return SET_ASIDE
    # The statement that dead-letters or removes a message also adds its error, with the same time.
    last = errors[-1] if errors else {}
    if last and last.get("at") == int(state["acked_at"] or 0):
        if last.get("error") == REMOVED_BY_HAND:
            return REMOVED
        return REDRIVEN if was_redriven else DEAD_LETTERED
    if not state["delivered_to"]:
        return NOT_RECORDED
    return HANDLED if state["handed"] else SKIPPED
