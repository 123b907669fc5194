"""Django's app configuration of worklists. It imports the declarations, and prepares the database after ``migrate``."""

from __future__ import annotations

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate, pre_delete
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class WorklistsConfig(AppConfig):
    name = "django_mqueue.worklists"
    label = "mqueue_worklists"
    verbose_name = _("Worklists")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.contrib.auth import get_user_model

        from . import checks  # noqa: F401
        from .models import unassign_items_of
        from .preparing import prepare

        autodiscover_modules("worklists")
        # Django sends the signal with the class that is deleted, which may be a proxy.
        for model in apps.get_models():
            if model._meta.concrete_model is get_user_model():
                uid = f"mqueue_worklists.users.{model._meta.label}"
                pre_delete.connect(unassign_items_of, sender=model, dispatch_uid=uid)
        post_migrate.connect(prepare, sender=self, dispatch_uid="mqueue_worklists.prepare")
