"""Helpers for operations with the test client: log in with permissions, press a button, read the log of actions."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from .looking import text

_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)"(?: value="([^"]*)")?[^>]*>')


def staff(*codenames: str, name: str = "operator") -> Client:
    """Return a client for a new staff user with these permissions of the queue."""
    user = User.objects.create_user(name, is_staff=True)
    found = Permission.objects.filter(content_type__app_label="django_mqueue", codename__in=codenames)
    assert len(found) == len(codenames), codenames
    user.user_permissions.set(found)
    client = Client()
    client.force_login(user)
    return client


def staff_client(*codenames: str) -> Any:
    """Return a fixture for a module, to be named ``client``: the client of ``staff`` with these permissions."""

    @pytest.fixture
    def client() -> Client:
        return staff(*codenames)

    return client


def url_of(page: str, *args: object) -> str:
    return reverse(f"admin:django_mqueue_{page}", args=args)


def hidden(html: str) -> dict[str, str | list[str]]:
    """Return the hidden fields of the page's last form that has any, without the CSRF token.

    A repeated field has the list of its values.
    """
    forms = [_HIDDEN.findall(form) for form in html.split("<form")[1:]]
    fields = [form for form in forms if any(name != "csrfmiddlewaretoken" for name, _ in form)]
    found: dict[str, list[str]] = {}
    for name, value in fields[-1]:
        found.setdefault(name, []).append(unescape(value))
    found.pop("csrfmiddlewaretoken", None)
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def confirm(client: Client, page: str, asked: dict[str, Any]) -> Any:
    """Submit a form, then the confirmation form that it returns. Follow the redirects."""
    shown = client.post(url_of(page), asked)
    assert shown.status_code == 200, text(shown.content.decode())
    return client.post(url_of(page), hidden(shown.content.decode()), follow=True)


def told(response: Any) -> list[str]:
    """Return the messages that the page shows after an operation."""
    found = re.findall(r'<ul class="messagelist">(.*?)</ul>', response.content.decode(), re.S)
    return [unescape(one) for item in found for one in re.findall(r"<li[^>]*>(.*?)</li>", item)]


def written_down() -> list[tuple[str, str, str]]:
    """Return (user, object, message) of all entries of the log of actions, oldest first."""
    entries = LogEntry.objects.order_by("pk").select_related("user")
    return [(one.user.get_username(), one.object_repr, one.get_change_message()) for one in entries]
