"""Benchmarks: each compares with something else in the same run, because only ratios travel between machines."""
