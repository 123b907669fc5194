"""Reports on topics in numbers, from the live log, an archive, or both; see docs/reference/report.md.

Spark counts rows, and only the counts return to the driver, which writes the tables and the page.
It imports its parent package, ``spark.archives``, ``spark.reader``, ``spark.database``, ``spark.sql``, ``service``,
``store`` and lower layers.
"""

from .making import report as report
from .result import Report as Report
