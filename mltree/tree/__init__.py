"""Unrooted binary trees as flat arrays of half-edges, and everything that makes or moves them.

topology      the arrays, their invariants and orders
splits        bipartitions, topology keys, Robinson-Foulds distance
moves         SPR and NNI in place, with undo
newick        text in and out (the only module that knows ete3)
random_trees  uniform random topologies
fitch         bit-parallel Fitch sets over packed patterns
parsimony     randomised stepwise addition and parsimony SPR
"""
