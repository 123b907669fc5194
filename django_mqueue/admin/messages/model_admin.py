"""Messages: their list, the page of each message, and the operations on them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from ..base.tables import ReadOnlyAdmin
from .hurrying import HurryMessage
from .message_list import MessagesPage
from .publishing import PublishMessage
from .scheduling import CancelMessage, RescheduleMessage
from .skipping import SkipMessage
from .timeline import MessagePage


class MessageAdmin(ReadOnlyAdmin):
    views = (PublishMessage, HurryMessage, RescheduleMessage, CancelMessage, SkipMessage)
    list_view = MessagesPage

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show the queue's page of a message, at the URL of Django's page."""
        return MessagePage.as_view(model_admin=self)(request, object_id=object_id)
