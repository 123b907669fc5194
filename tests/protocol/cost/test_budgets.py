"""Each public verb issues exactly as many statements and commits as its budget says."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from django.test import override_settings

from tests.support.statements import CALM, counted

from .budgets import BUDGETS, Scene

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("verb", BUDGETS)
def test_a_verb_keeps_its_budget(verb: str) -> None:
    expected = BUDGETS[verb]
    with override_settings(MQUEUE=CALM), ExitStack() as stack:
        call = expected.prepare(Scene(stack))
        with counted() as cost:
            call()
        assert (cost.count, cost.commits) == (expected.statements, expected.commits), cost
