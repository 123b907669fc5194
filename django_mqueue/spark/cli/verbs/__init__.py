"""The verbs of the command. Their modules call the functions of ``django_mqueue.spark``.

They import ``spark``, ``spark.cli``, the packages for archives, exports, replays, reports and SQL, ``checks``,
``command`` and lower layers. They can be imported without PySpark.
"""

from __future__ import annotations

from . import archives, doctor, export, replays, report

VERBS = (doctor.VERB, *archives.VERBS, export.VERB, report.VERB, *replays.VERBS)
"""All verbs, in the order in which the help lists them."""
