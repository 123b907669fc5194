"""Add the results of jobs. The servers add the column without a copy of the table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0006_session_locks"),
    ]

    operations = [
        migrations.AddField(
            model_name="deliverystate",
            name="result",
            field=models.BinaryField(
                help_text="JSON of what a job returned. Messages have none.", null=True, verbose_name="result"
            ),
        ),
    ]
