"""The page that shows what a run found."""

from glasshouse.report.page import write_report

__all__ = ["write_report"]
