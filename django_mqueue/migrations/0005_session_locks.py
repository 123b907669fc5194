"""Add the name of each worker's session lock. Workers of the previous version leave it empty."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0004_more_gates"),
    ]

    operations = [
        migrations.AddField(
            model_name="subscriberheartbeat",
            name="session_lock",
            field=models.CharField(
                db_collation="utf8mb4_bin",
                db_default="",
                help_text="The named lock of its session, if it has one.",
                max_length=64,
            ),
        ),
    ]
