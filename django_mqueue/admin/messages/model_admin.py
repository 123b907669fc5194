"""Messages: their list, the page of each message, and the operations on them."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from ..base.pages import ReadOnlyAdmin
from .expediting import HurryMessage
from .message_list import MessagesPage
from .publishing import PublishMessage
from .timeline import LifePage


class MessageAdmin(ReadOnlyAdmin):
    """Replaces Django's list and page of one row with the queue's own pages, at the same URLs."""

    order = ("-offset",)
    views = (PublishMessage, HurryMessage)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        _only_read(request)
        return MessagesPage.as_view(page=self)(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        _only_read(request)
        return LifePage.as_view(page=self)(request, object_id=object_id)


def _only_read(request: HttpRequest) -> None:
    """Raise ``PermissionDenied`` unless the request only reads."""
    if request.method not in ("GET", "HEAD"):
        raise PermissionDenied
