"""Messages: their list, the page of each message, and the operations on them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..base.tables import ReadOnlyAdmin
from .deliver_now import DeliverNow
from .message_list import MessagesPage
from .publishing import PublishMessage
from .scheduling import CancelMessage, RescheduleMessage
from .skipping import SkipMessage
from .timeline import MessagePage


class MessageAdmin(ReadOnlyAdmin):
    views = (PublishMessage, DeliverNow, RescheduleMessage, CancelMessage, SkipMessage)
    list_view = MessagesPage

    def change_view(  # type: ignore[override]
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponseBase:
        """Show the queue's page of a message, at the URL of Django's page."""
        view = self._with_problem_page(MessagePage.as_view(model_admin=self))
        return view(request, object_id=object_id)
