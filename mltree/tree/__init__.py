"""Unrooted binary trees as flat arrays of half-edges, and everything that makes or moves them.

topology    the arrays and their orders; trees side by side; random trees
splits      bipartitions, branches that split off given tips, Robinson-Foulds distance
moves       SPR and NNI in place, with undo
newick      Newick and NEXUS: the reader, binary trees, the writer
clades      trees of any shape as intervals of their tips; single trees as written, drawings
fitch       bit-parallel Fitch sets over packed sites; conflicts of a tree and an alignment
parsimony   parsimony scores, stepwise addition and batched SPR: starting trees of a search
"""
