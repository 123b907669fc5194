"""Divide an index of the leases in two, so that a renewal changes only the one that is sorted by time.

One ALTER TABLE does it: workers of the previous version go on meanwhile, and their statements name the index.
"""

from django.db import migrations, models

_FORWARDS = """
ALTER TABLE queue_partition_leases DROP INDEX queue_leases_holder,
ADD INDEX queue_leases_holder (consumer_group, topic, holder, partition_key),
ADD INDEX queue_leases_renewed (consumer_group, topic, lease_renewed_at, holder)
"""
_BACKWARDS = """
ALTER TABLE queue_partition_leases DROP INDEX queue_leases_renewed, DROP INDEX queue_leases_holder,
ADD INDEX queue_leases_holder (consumer_group, topic, holder, lease_renewed_at, partition_key)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("django_mqueue", "0009_operate"),
    ]

    operations = [
        migrations.RunSQL(
            _FORWARDS,
            _BACKWARDS,
            state_operations=[
                migrations.RemoveIndex(model_name="partitionlease", name="queue_leases_holder"),
                migrations.AddIndex(
                    model_name="partitionlease",
                    index=models.Index(
                        fields=["consumer_group", "topic", "holder", "partition_key"],
                        name="queue_leases_holder",
                    ),
                ),
                migrations.AddIndex(
                    model_name="partitionlease",
                    index=models.Index(
                        fields=["consumer_group", "topic", "lease_renewed_at", "holder"],
                        name="queue_leases_renewed",
                    ),
                ),
            ],
        ),
    ]
