"""Secure aggregation after Bonawitz et al. (CCS 2017), against an honest but curious server: the parts."""
