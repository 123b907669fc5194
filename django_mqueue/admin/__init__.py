"""Pages of Django's admin: the state of the queue, the operations on it, and its five tables, read-only.

Django's autodiscovery registers the pages on the default site. ``register`` adds them to another site. Each subpackage
holds the pages of one subject, and ``base`` the parts that all share.
It imports ``inspect``, ``tasks``, ``browse``, ``stats``, ``service`` and lower layers.
"""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin import AdminSite

from ..models import (
    ConsumerGroup,
    DeadLetter,
    DeliveryState,
    Message,
    Offset,
    PartitionLease,
    SubscriberHeartbeat,
    Topic,
)
from .dead_letters.model_admin import DeadLetterAdmin
from .groups.model_admin import ConsumerGroupAdmin
from .groups.tables import OffsetAdmin, PartitionLeaseAdmin, SubscriberHeartbeatAdmin
from .messages.delivery_state import DeliveryStateAdmin
from .messages.model_admin import MessageAdmin
from .topics.model_admin import TopicAdmin


def register(site: AdminSite) -> None:
    """Add the pages of topics, groups, dead letters and all five tables to a site."""
    site.register(Topic, TopicAdmin)
    site.register(ConsumerGroup, ConsumerGroupAdmin)
    site.register(DeadLetter, DeadLetterAdmin)
    site.register(Message, MessageAdmin)
    site.register(PartitionLease, PartitionLeaseAdmin)
    site.register(Offset, OffsetAdmin)
    site.register(SubscriberHeartbeat, SubscriberHeartbeatAdmin)
    # ``register`` refuses a composite primary key, also of a proxy, but ``DeliveryStateAdmin`` can put it into a URL.
    # Only models of the registry are in the site's index, so no public API gives this page its place there.
    site._registry[DeliveryState] = DeliveryStateAdmin(DeliveryState, site)


register(admin.site)
