"""The audit: a federation, every adversary, every defence, one report."""
