"""Faults on purpose: kills, full disks, damaged files, wrong science, load. `make torture` runs them all.

Every fault is a function that tries something bad so many times and returns a `Tally`. `make test` runs each
with a small count.
"""
