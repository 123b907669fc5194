"""Options that exclude each other, or that the system cannot do, are errors that name the option and the way out."""

from __future__ import annotations

import os

import pytest
from django.core.management import CommandError

from django_mqueue.models import Offset
from tests.support.running import Seen, registered, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("drain", True),
        ("max_messages", 1),
        ("max_seconds", 1),
        ("processes", 2),
        ("max_messages_per_child", 1),
        ("max_memory_per_child", 100),
    ],
)
def test_reload_excludes_what_ends_or_multiplies_the_worker(option: str, value: object) -> None:
    alone = {"drain": False, "max_seconds": None}
    with (
        registered("t", Seen()),
        pytest.raises(CommandError, match=f"--{option.replace('_', '-')} exclude each other.*Leave out one"),
    ):
        run(reload=True, **{**alone, option: value})
    assert not Offset.objects.filter(topic="t").exists()


def test_a_system_without_fork_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with registered("t", Seen()), pytest.raises(CommandError, match=r"os\.fork, which Windows does not have"):
        run(processes=2)


def test_a_name_that_is_too_long_with_the_number_of_a_child_is_an_error() -> None:
    with registered("t", Seen()), pytest.raises(CommandError, match="--name: name may have at most 128"):
        run(processes=10, name="w" * 126)


@pytest.mark.parametrize("option", ["processes", "max-messages-per-child", "max-memory-per-child"])
def test_impossible_values_are_errors_that_name_the_option(option: str) -> None:
    with registered("t", Seen()), pytest.raises(CommandError, match=f"--{option}"):
        run(f"--{option}=0")
