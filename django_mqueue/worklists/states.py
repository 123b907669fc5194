"""The states of a work item, and the rules for its steps. Pure functions and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext_lazy as _

from ..exceptions import MQueueError

UNASSIGNED, ASSIGNED, DELAYED, AUTOMATED, FINISHED, CANCELLED = BUILT_IN = (
    "unassigned", "assigned", "delayed", "automated", "finished", "cancelled",
)  # fmt: skip
ENDED = (FINISHED, CANCELLED)
NAME_MAX = 32
"""Maximum length of the name of a state."""

STATE_TEXTS = {
    UNASSIGNED: _("unassigned"),
    ASSIGNED: _("assigned"),
    DELAYED: _("delayed"),
    AUTOMATED: _("automated"),
    FINISHED: _("finished"),
    CANCELLED: _("cancelled"),
}

TAKE, ASSIGN, UNASSIGN, HAND_BACK, FINISH, DELAY, MOVE, AUTOMATE, SET_DUE, CANCEL, COMMENT = VERBS = (
    "take", "assign", "unassign", "hand_back", "finish", "delay", "move", "automate", "set_due", "cancel", "comment",
)  # fmt: skip
"""The methods of ``WorkItem`` that take a step."""

FROM = {
    TAKE: (UNASSIGNED, DELAYED),
    ASSIGN: (UNASSIGNED, ASSIGNED, DELAYED, AUTOMATED),
    UNASSIGN: (ASSIGNED, DELAYED, AUTOMATED),
    HAND_BACK: (ASSIGNED,),
    DELAY: (UNASSIGNED, ASSIGNED),
    AUTOMATE: (UNASSIGNED, ASSIGNED, DELAYED),
}
"""The built-in states in which a verb is allowed. ``is_allowed`` has the rules for other verbs and declared states."""

VIEWS = ("mine", "team", "open", "overdue")
"""Names of views of the admin's list. No state may have one of them."""


class WorklistError(MQueueError):
    """Base class of the errors of worklists."""


class TransitionNotAllowed(WorklistError):
    """The item's state, or the user's permissions, do not allow this step. The text names what is allowed."""


class ItemChanged(WorklistError):
    """Another step has changed the item since it was read. The text names its state now. Nothing was changed."""


@dataclass(frozen=True)
class State:
    """A state that a worklist declares, such as ``review``.

    - ``after``: the states from which an item may move here.
    - ``then``: the states into which it may move from here. ``"finished"``: it may be finished here.
    - ``required``: ``finish`` is allowed only in this state, or in another one that is required. A handler that
      finishes an automated item needs no such state.
    - ``own``: False: the user who moved the item here, and its assignee at that time, may neither move nor finish it.

    To move or finish an item in this state, a user needs the worklist's permission ``review``. Raises ``ValueError``
    for invalid names.
    """

    name: str
    after: Sequence[str] = (ASSIGNED,)
    then: Sequence[str] = (ASSIGNED, FINISHED)
    required: bool = False
    own: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier() or len(self.name) > NAME_MAX:
            raise ValueError(
                f"the name of a state must be an identifier of at most {NAME_MAX} characters, not {self.name!r}"
            )
        if self.name in (*BUILT_IN, *VIEWS):
            raise ValueError(f"{self.name!r} is a state or a view of all worklists: declare another name")
        if self.required and FINISHED not in self.then:
            raise ValueError(f'state {self.name!r} is required: "finished" must be in then')


def declared(states: Iterable[State | str]) -> dict[str, State]:
    """Return the declared states by name. Raises ``ValueError`` or ``TypeError`` for invalid states."""
    if isinstance(states, str):
        raise TypeError(f"states must be a sequence of State or names, not the str {states!r}")
    found: dict[str, State] = {}
    for given in states:
        state = given if isinstance(given, State) else State(given)
        if state.name in found:
            raise ValueError(f"state {state.name!r} is declared twice")
        found[state.name] = state
    for state in found.values():
        known = {UNASSIGNED, ASSIGNED, *found}
        if wrong := [name for name in state.after if name not in known]:
            raise ValueError(f"state {state.name!r}: after names {wrong[0]!r}; known are {_listed(known)}")
        known |= {FINISHED}
        if wrong := [name for name in state.then if name not in known]:
            raise ValueError(f"state {state.name!r}: then names {wrong[0]!r}; known are {_listed(known)}")
    return found


def moves(states: dict[str, State], state: str) -> list[str]:
    """Return the states into which ``move`` may bring an item from ``state``."""
    here = states.get(state)
    found = [name for name, to in states.items() if state in to.after]
    if here is not None:
        found += [name for name in here.then if name != FINISHED and name not in found]
    return found


def is_allowed(states: dict[str, State], verb: str, state: str) -> bool:
    """Return whether the verb is allowed in this state, for a user with all permissions."""
    if verb == COMMENT:
        return True
    if state in ENDED:
        return False
    if verb in (CANCEL, SET_DUE):
        return True
    if verb == MOVE:
        return bool(moves(states, state))
    if verb == FINISH:
        if any(one.required for one in states.values()):
            return state in states and states[state].required
        return state == ASSIGNED or (state in states and FINISHED in states[state].then)
    # An item can also leave a state that the worklist no longer declares.
    return state in FROM[verb] or (verb in (ASSIGN, UNASSIGN) and state not in BUILT_IN)


def allowed_in(states: dict[str, State], verb: str) -> list[str]:
    """Return the states in which the verb is allowed."""
    return [state for state in (*BUILT_IN, *states) if is_allowed(states, verb, state)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
