"""The page that shows what a run found, and the page that compares runs."""

from glasshouse.report.compare import compare_reports, compare_runs, write_comparison
from glasshouse.report.page import write_report

__all__ = ["compare_reports", "compare_runs", "write_comparison", "write_report"]
