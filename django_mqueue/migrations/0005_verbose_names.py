"""Names of models and fields, for translation, and plainer names of permissions. It runs no SQL."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0004_more_gates"),
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
                ],
                "verbose_name": "consumer group",
                "verbose_name_plural": "consumer groups",
            },
        ),
        migrations.AlterModelOptions(
            name="deadletter",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("redrive_deadletter", "Can redrive dead letters"),
                    ("edit_deadletter", "Can edit the payload of a dead letter and redrive it"),
                    ("purge_deadletter", "Can purge dead letters"),
                ],
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
            },
        ),
        migrations.AlterModelOptions(
            name="deliverystate",
            options={"verbose_name": "delivery state", "verbose_name_plural": "delivery states"},
        ),
        migrations.AlterModelOptions(
            name="message",
            options={
                "permissions": [
                    ("publish_message", "Can publish messages by hand"),
                    ("unmask_message", "Can see the masked parts of payloads and headers"),
                    ("hurry_message", "Can deliver scheduled messages now"),
                ],
                "verbose_name": "message",
                "verbose_name_plural": "messages",
            },
        ),
        migrations.AlterModelOptions(
            name="offset",
            options={"verbose_name": "offset", "verbose_name_plural": "offsets"},
        ),
        migrations.AlterModelOptions(
            name="partitionlease",
            options={
                "permissions": [("release_partitionlease", "Can release the leases of subscribers")],
                "verbose_name": "partition lease",
                "verbose_name_plural": "partition leases",
            },
        ),
        migrations.AlterModelOptions(
            name="subscriberheartbeat",
            options={"verbose_name": "subscriber heartbeat", "verbose_name_plural": "subscriber heartbeats"},
        ),
        migrations.AlterModelOptions(
            name="topic",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("pause_topic", "Can pause all groups of a topic"),
                    ("resume_topic", "Can resume all groups of a topic"),
                ],
                "verbose_name": "topic",
                "verbose_name_plural": "topics",
            },
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="alone",
            field=models.BooleanField(
                default=False,
                help_text="Quarantined. If its worker dies, the attempt has failed.",
                verbose_name="alone",
            ),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="consumer_group",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="consumer group"),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="delivered_to",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="delivered to"),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="delivery_token",
            field=models.BigIntegerField(
                help_text="Random, new with each claim. Each acknowledgement must match it.",
                verbose_name="delivery token",
            ),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="failure_count",
            field=models.PositiveIntegerField(
                default=0, help_text="Failed attempts; max_attempts ends them.", verbose_name="failure count"
            ),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="handed",
            field=models.BooleanField(
                default=False, help_text="This delivery reached a handler.", verbose_name="handed"
            ),
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="topic",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="topic"),
        ),
        migrations.AlterField(
            model_name="offset",
            name="consumer_group",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="consumer group"),
        ),
        migrations.AlterField(
            model_name="offset",
            name="offset_acked",
            field=models.BigIntegerField(
                default=0, help_text="All of the partition up to here is done.", verbose_name="offset acked"
            ),
        ),
        migrations.AlterField(
            model_name="offset",
            name="scan_offset",
            field=models.BigIntegerField(
                default=0,
                help_text="All of the partition up to here has been delivered.",
                verbose_name="scan offset",
            ),
        ),
        migrations.AlterField(
            model_name="offset",
            name="topic",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="topic"),
        ),
        migrations.AlterField(
            model_name="partitionlease",
            name="consumer_group",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="consumer group"),
        ),
        migrations.AlterField(
            model_name="partitionlease",
            name="topic",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="topic"),
        ),
        migrations.AlterField(
            model_name="subscriberheartbeat",
            name="consumer_group",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="consumer group"),
        ),
        migrations.AlterField(
            model_name="subscriberheartbeat",
            name="incarnation",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=32, verbose_name="incarnation"),
        ),
        migrations.AlterField(
            model_name="subscriberheartbeat",
            name="subscriber_name",
            field=models.CharField(
                db_collation="utf8mb4_bin", max_length=128, verbose_name="subscriber name"
            ),
        ),
        migrations.AlterField(
            model_name="subscriberheartbeat",
            name="topic",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=128, verbose_name="topic"),
        ),
    ]
