from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("example_shop", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="mail",
            name="sent_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
