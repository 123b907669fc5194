"""The example's shop: its command in real processes, its own tests, and its pages."""

from __future__ import annotations

import re
import signal

import pytest

from example_project.shop.events import GROUPS
from tests.docs_and_example.example.conftest import Example

PAGES = """
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from example_project.shop import models
User.objects.create_superuser("ada", password="lovelace")
client = Client(headers={"host": "localhost"})
client.login(username="ada", password="lovelace")
for model in admin.site._registry:
    if model._meta.app_label == "example_shop":
        place = f"/admin/example_shop/{model._meta.model_name}/"
        first = model.objects.first()
        assert first is not None, model
        for page in (place, f"{place}{first.pk}/change/"):
            assert client.get(page).status_code == 200, page
        assert client.get(f"{place}add/").status_code == 403, model
        print("seen", model.__name__)
"""


@pytest.mark.always
def test_all_comes_as_promised_and_a_wrong_invoice_is_noticed(example: Example) -> None:
    code, output = example.run("shop")
    assert code == 0, output
    assert "dora: confirmed after" in output
    assert "dead letter after 4 attempts: the bank did not answer" in output
    assert "dead letter after 1 attempt: the bank declines the declined card" in output
    assert "slow card charged at attempt 3" in output
    assert "2 dead letters are redriven" in output
    assert "reminded after" in output
    assert "1 large refund(s) paid by hand, after a review." in output
    assert "1 of 2 refunds of this week were paid by the handler: 50%." in output
    assert "The report of each morning, made now: 7 orders, 7 invoices over " in output
    assert "As promised" in output

    code, output = example.run("shell", "-v", "0", "-c", PAGES)
    assert code == 0, output
    assert [line for line in output.splitlines() if line.startswith("seen")] == [
        f"seen {name}"
        for name in ("Order", "Mail", "Invoice", "InvoiceNumbers", "Charge", "Refund", "BankEntry")
    ]

    example.sql("UPDATE example_shop_invoicenumbers SET last = last + 1")
    code, output = example.run("shop")
    assert code == 1, output
    assert "not as promised" in output
    assert "the invoices' numbers" in output


@pytest.mark.exhaustive
def test_an_interrupted_day_can_be_followed_by_another(example: Example) -> None:
    with example.start("shop") as interrupted:
        assert interrupted.stdout is not None
        for line in interrupted.stdout:
            if line.startswith("  order 4"):
                break
        interrupted.send_signal(signal.SIGINT)
        output = interrupted.stdout.read()
    assert interrupted.returncode == 130, output
    assert "interrupted" in output

    code, output = example.run("shop")
    assert code == 0, output
    assert "As promised" in output


def test_the_shops_own_tests_pass(example: Example) -> None:
    code, output = example.run("test", "example_project.shop", "--noinput")
    assert code == 0, output
    assert re.search(r"\nRan [1-9]\d* tests? in .*\n\nOK\n", output), output


def test_each_handler_is_one_of_the_groups_that_are_waited_for() -> None:
    """The command waits for the groups in ``GROUPS`` only. Each handler's group is in it, except the worklist's."""
    code, output = Example("mysql://nobody@127.0.0.1:1/none").run(
        "shell",
        "-v",
        "0",
        "-c",
        "from django_mqueue.workers.registry import *; autodiscover();"
        "print(sorted(f'{h.topic}:{h.group}' for h in handlers()"
        " if not h.topic.startswith(('flights', 'carrier-days')) and 'worklist' not in h.group))",
    )
    assert code == 0, output
    assert output.strip() == str(sorted(f"{topic}:{group}" for topic in GROUPS for group in GROUPS[topic]))
