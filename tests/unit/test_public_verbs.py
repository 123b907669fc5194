"""Each public verb has a walk, a conformance scenario and a cost budget, or an exemption with its reason.

- The walk kills the process at each statement of the verb (``tests/protocol/boundaries``).
- The scenario judges the verb from outside, for any implementation (``tests/conformance``).
- The budget is its exact number of statements and commits (``tests/protocol/cost/budgets.py``).

A verb is a function of ``django_mqueue`` or ``django_mqueue.inspect``, or a method of ``Delivery`` or ``Subscription``.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import django_mqueue
from django_mqueue import Delivery, Subscription
from django_mqueue import inspect as inspecting
from tests.protocol.boundaries.catalogue import WALKS
from tests.protocol.cost.budgets import BUDGETS

CONFORMANCE = Path(__file__).parents[1] / "conformance"


@dataclass(frozen=True)
class Exempt:
    """``reason`` states why the verb needs no walk, scenario or budget."""

    reason: str


@dataclass(frozen=True)
class Shown:
    """``walk`` and ``scenario`` are names of functions. The budget has the verb's name, unless ``cost`` exempts it."""

    walk: str | Exempt
    scenario: str | Exempt
    cost: Exempt | None = None


READS = Exempt("it reads")
OTHER_TIME = Exempt("it issues the statements of `inspect.send_to_front`, with another time")
COPIES = Exempt("one transaction appends the copies, with the statement of `redrive`")
NO_STATEMENT = Exempt("it registers a handler in the process and issues no statement")


def same_as(verb: str) -> Shown:
    reason = Exempt(f"it issues the statements of `{verb}`, in another thread")
    return Shown(reason, reason, reason)


READER = Shown(
    READS,
    Exempt("the suite judges by what is delivered"),
    Exempt(
        "the number of statements grows with a bisection; tests/features/inspect/test_cost.py has its bounds"
    ),
)

VERBS = {
    "publish": Shown("publish_one", "test_publish_and_subscribe"),
    "apublish": same_as("publish"),
    "publish_many": Shown("publish_three", "test_publish_many_is_all_or_nothing"),
    "request": Shown("request_that_is_answered", "test_the_first_reply_is_the_answer"),
    "arequest": same_as("request"),
    "scheduled": Shown(READS, "test_scheduled_messages_are_listed_until_they_are_due"),
    "cancel": Shown("cancel_one", "test_cancel"),
    "reschedule": Shown("reschedule_one", "test_reschedule"),
    "subscribe": Shown("subscribe_from_the_earliest", "test_start_latest"),
    "unsubscribe": Shown("unsubscribe_and_come_again", "test_unsubscribe_forgets_the_place"),
    "pause": Shown("pause_a_group", "test_pause_and_resume"),
    "resume": Shown("resume_a_group", "test_pause_and_resume"),
    "reset": Shown("reset_to_the_earliest", "test_reset"),
    "release": Shown("release_a_lease_by_hand", "test_release"),
    "redrive": Shown("redrive_of_two", "test_redrive_of_some"),
    "purge": Shown("purge_of_one", "test_purge"),
    "consumer": Shown(NO_STATEMENT, NO_STATEMENT, NO_STATEMENT),
    "Subscription.open": Shown("start", "test_late_subscriber"),
    "Subscription.poll": Shown("first_poll", "test_poll_gives_no_more_than_asked_for"),
    "Subscription.ack": Shown("ack_many", "test_many_acked_at_once_of_which_some_are_stale"),
    "Subscription.close": Shown("stop", "test_graceful_shutdown_during_processing"),
    "Delivery.ack": Shown("ack", "test_answers_can_be_repeated"),
    "Delivery.nack": Shown("nack", "test_nack_with_delay"),
    "Delivery.reject": Shown("reject", "test_reject"),
    "Delivery.postpone": Shown("postpone", "test_postpone_counts_no_attempt"),
    "Delivery.extend": Shown("extend", "test_extend_visibility"),
    "Delivery.atomic": Shown("reply_and_ack_in_one", "test_effects_and_ack_are_one_commit"),
    "Delivery.reply": Shown("reply", "test_the_first_reply_is_the_answer"),
    "Delivery.areply": same_as("Delivery.reply"),
    "inspect.remove": Shown("remove_one_that_waits_and_one_that_is_new", "test_remove"),
    "inspect.send_to_front": Shown("send_one_to_the_front", "test_send_to_front"),
    "inspect.delay": Shown(OTHER_TIME, "test_delay"),
    "inspect.hold": Shown(OTHER_TIME, "test_hold_and_unhold"),
    "inspect.unhold": Shown(OTHER_TIME, "test_hold_and_unhold"),
    "inspect.redeliver": Shown(COPIES, "test_redeliver"),
    "inspect.erase": Shown("erase_one_that_waits_and_one_that_is_new", "test_erase"),
    "inspect.counts": READER,
    "inspect.deliveries": READER,
    "inspect.group_figures": READER,
    "inspect.groups": READER,
    "inspect.holds": READER,
    "inspect.lag": READER,
    "inspect.latency": READER,
    "inspect.messages": READER,
    "inspect.partitions": READER,
    "inspect.preview_reset": READER,
    "inspect.rates": READER,
    "inspect.subscribers": READER,
    "inspect.topic_figures": READER,
    "inspect.topics": READER,
}


def public_verbs() -> set[str]:
    def functions(owner: ModuleType | type, names: list[str], prefix: str) -> set[str]:
        return {prefix + name for name in names if inspect.isfunction(getattr(owner, name))}

    found = functions(django_mqueue, django_mqueue.__all__, "")
    found |= functions(inspecting, inspecting.__all__, "inspect.")
    for owner in (Delivery, Subscription):
        names = [name for name in dir(owner) if not name.startswith("_")]
        found |= functions(owner, names, f"{owner.__name__}.")
    return found


@cache
def scenarios() -> dict[str, str]:
    """Return the source of each scenario by its name."""
    sources = {}
    for path in CONFORMANCE.glob("test_*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                sources[node.name] = ast.get_source_segment(text, node) or ""
    return sources


def uses(verb: str, source: str) -> bool:
    return re.search(rf"\b{verb.rpartition('.')[2]}\(", source) is not None


def test_the_list_names_each_public_verb() -> None:
    assert public_verbs() ^ set(VERBS) == set(), (
        "add new verbs to VERBS, with a walk, a scenario and a budget"
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_walk_kills_the_process_in_each_verb(verb: str) -> None:
    walk = VERBS[verb].walk
    if not isinstance(walk, Exempt):
        assert WALKS[walk].stages, "this walk is not part of test_every_boundary"
        body = inspect.getsource(WALKS[walk].operation).partition("    yield\n")[2]
        assert uses(verb, body), f"{walk} does not use {verb} after its yield"


@pytest.mark.parametrize("verb", VERBS)
def test_a_scenario_judges_each_verb(verb: str) -> None:
    scenario = VERBS[verb].scenario
    if not isinstance(scenario, Exempt):
        assert uses(verb, scenarios()[scenario]), f"{scenario} does not use {verb}"


def test_each_verb_has_a_budget() -> None:
    assert set(BUDGETS) == {verb for verb, shown in VERBS.items() if shown.cost is None}
