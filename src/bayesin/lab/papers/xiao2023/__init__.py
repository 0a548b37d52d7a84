"""Xiao, Liu and Bamler 2023: many samples of a network folded into one Gaussian."""
