"""The rounds of somebody else's federation, audited as they were recorded."""
