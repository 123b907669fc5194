"""Registration of the pages on admin sites."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.core import checks
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path
from django.utils.text import capfirst

from django_mqueue.admin import register
from django_mqueue.admin.base.urls import NAVIGATION
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat

MODELS = [DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat]


@pytest.mark.parametrize("model", MODELS)
def test_autodiscovery_puts_them_on_the_default_site(model: type[Message]) -> None:
    assert admin.site.is_registered(model)


def test_they_can_be_put_on_another_site_and_taken_off() -> None:
    """This includes the model with a composite primary key, which Django's ``register`` refuses."""
    site = AdminSite(name="own")
    register(site)
    assert all(site.is_registered(model) for model in MODELS)
    site.unregister(MODELS)
    assert not any(site.is_registered(model) for model in MODELS)


def test_djangos_checks_of_the_pages_find_nothing() -> None:
    site = AdminSite(name="own")
    register(site)
    assert site.check(app_configs=None) == []
    assert [each for each in checks.run_checks() if "admin" in str(each.id)] == []


site = AdminSite(name="own")
register(site)
urlpatterns = [path("own/", site.urls)]


@pytest.mark.django_db
@pytest.mark.urls(__name__)
def test_links_stay_on_their_site(rf: RequestFactory, admin_user: object) -> None:
    """Links to rows and messages stay on the site of the page."""
    from .rows import delivery

    row = delivery()
    request = rf.get("/own/django_mqueue/deliverystate/")
    request.user = admin_user  # type: ignore[assignment]
    page = site.get_model_admin(DeliveryState)
    response = page.changelist_view(request)
    assert isinstance(response, HttpResponse)
    assert b'href="/own/django_mqueue/deliverystate/' in response.render().content  # type: ignore[attr-defined]
    shown = page.get_queryset(request).get(pk=row.pk)
    assert 'href="/own/django_mqueue/message/42/change/"' in page.message(shown)  # type: ignore[attr-defined]


def test_the_tabs_have_the_titles_of_the_side_bar() -> None:
    models = {
        page.removesuffix("_changelist"): title
        for page, title in NAVIGATION.items()
        if page.endswith("_changelist")
    }
    for name, title in models.items():
        assert str(title) == capfirst(str(apps.get_model("django_mqueue", name)._meta.verbose_name_plural))
