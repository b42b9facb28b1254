"""Dates of the nodes of trees: by least squares and by maximum likelihood, under clocks."""
