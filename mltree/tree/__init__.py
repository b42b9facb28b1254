"""Unrooted binary trees as flat arrays of half-edges, and everything that makes or moves them.

topology       the arrays, their invariants and orders
forest         trees side by side: waves through all at once, topology keys
splits         bipartitions, branches that split off given tips, Robinson-Foulds distance
moves          SPR and NNI in place, with undo
newick         Newick and NEXUS: the reader, binary trees, the writer
clades         trees of any shape as intervals of their tips; single trees as written, drawings
random_trees   uniform random topologies, Yule trees
fitch          bit-parallel Fitch sets over packed sites; conflicts of a tree and an alignment
parsimony      sets behind all half-edges, parsimony score, stepwise addition, reference engine
parsimony_spr  starting trees of a search: stepwise addition improved by batched SPR
"""
