"""Scale-MIA (Shi et al. 2023): whole batches from the sum of updates, and what the paper leaves open."""
