"""Automatic transformation search (Gao et al. 2021) and its replication: do policies defeat inversions?"""
