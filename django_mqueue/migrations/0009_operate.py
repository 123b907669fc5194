"""Add permissions to reschedule, cancel and remove messages and to unsubscribe groups; plainer names of fields.

It runs no SQL.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0008_stop_jobs"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="consumergroup",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("reset_consumergroup", "Can reset a group to another position of a topic"),
                    ("pause_consumergroup", "Can pause a group"),
                    ("resume_consumergroup", "Can resume a group"),
                    ("unsubscribe_consumergroup", "Can unsubscribe a group from a topic"),
                ],
                "verbose_name": "consumer group",
                "verbose_name_plural": "consumer groups",
            },
        ),
        migrations.AlterModelOptions(
            name="message",
            options={
                "permissions": [
                    ("publish_message", "Can publish messages by hand"),
                    ("unmask_message", "Can see the masked parts of payloads and headers"),
                    ("hurry_message", "Can deliver scheduled messages now"),
                    ("reschedule_message", "Can give scheduled messages another time"),
                    ("cancel_message", "Can cancel scheduled messages"),
                    ("remove_message", "Can remove messages from a group"),
                    ("stop_message", "Can cancel and stop jobs"),
                ],
                "verbose_name": "message",
                "verbose_name_plural": "messages",
            },
        ),
        migrations.AlterModelOptions(
            name="subscriberheartbeat",
            options={"verbose_name": "subscriber", "verbose_name_plural": "subscribers"},
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="alone",
            field=models.BooleanField(
                default=False,
                help_text="Quarantined. If its subscriber dies, the attempt has failed.",
                verbose_name="alone",
            ),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="delivered_to",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="subscriber"),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="failure_count",
            field=models.PositiveIntegerField(
                default=0,
                help_text="Failed attempts. The handler limits their number.",
                verbose_name="failure count",
            ),
        ),
        migrations.AlterField(
            model_name="partitionlease",
            name="holder",
            field=models.CharField(
                db_collation="utf8mb4_bin",
                help_text="The subscriber's incarnation, new with each start; empty when free.",
                max_length=32,
            ),
        ),
    ]
