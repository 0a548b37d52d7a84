"""Rossi, Singh and Hannagan, NeurIPS 2023: posteriors aligned modulo permutations, and the barriers between them."""
