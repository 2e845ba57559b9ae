"""MIA-BAD (Banerjee et al. 2023): membership inference from batches, and whether federation mitigates it."""
