"""Add the name of each worker's session lock. Workers of the previous version leave it empty."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0005_verbose_names"),
    ]

    operations = [
        migrations.AddField(
            model_name="subscriberheartbeat",
            name="session_lock",
            field=models.CharField(db_collation="utf8mb4_bin", db_default="", max_length=64),
        ),
    ]
