"""Secure aggregation after Bonawitz et al. (CCS 2017) and Bell et al. (CCS 2020), for a curious server."""
