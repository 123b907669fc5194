from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("flights", "0002_carrier_hours"),
    ]

    operations = [
        migrations.AlterField(
            model_name="aircraft",
            name="tail",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=8),
        ),
        migrations.AlterField(
            model_name="carrierhour",
            name="carrier",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=2),
        ),
        migrations.AlterField(
            model_name="delay",
            name="carrier",
            field=models.CharField(db_collation="utf8mb4_bin", max_length=2),
        ),
    ]
