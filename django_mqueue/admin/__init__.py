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
    # ``AdminSite.register`` refuses models with a composite primary key: Django's ModelAdmin cannot put such a key
    # into a URL. ``DeliveryStateAdmin`` can, so this line adds it to the registry directly.
    site._registry[DeliveryState] = DeliveryStateAdmin(DeliveryState, site)


register(admin.site)
