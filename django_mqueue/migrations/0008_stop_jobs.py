"""Add the permission to cancel and stop jobs. No table changes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0007_results"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="message",
            options={
                "permissions": [
                    ("publish_message", "Can publish messages by hand"),
                    ("unmask_message", "Can see the masked parts of payloads and headers"),
                    ("hurry_message", "Can deliver scheduled messages now"),
                    ("stop_message", "Can cancel and stop jobs"),
                ],
                "verbose_name": "message",
                "verbose_name_plural": "messages",
            },
        ),
        migrations.AlterField(
            model_name="deliverystate",
            name="result",
            field=models.BinaryField(
                help_text="What a job returned, as JSON. Before that, a note with its progress. Messages have none.",
                null=True,
                verbose_name="result",
            ),
        ),
    ]
