"""Reports on topics in numbers, from the live log, an archive, or both; see docs/reference/report.md."""

from .making import report as report
from .result import Report as Report
