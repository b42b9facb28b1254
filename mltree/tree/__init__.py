"""Unrooted binary trees as flat arrays of half-edges, and everything that makes or moves them.

topology       the arrays, their invariants and orders
forest         trees side by side: waves through all at once, topology keys
splits         bipartitions, branches that split off given tips, Robinson-Foulds distance
moves          SPR and NNI in place, with undo
newick         text in and out (the only module that knows ete3)
newick_text    the tokens of Newick, checked and normalised
nexus          trees of NEXUS files, in and out
clades         trees of any shape as intervals of their tips; as Newick
newick_clades  whole files of Newick trees as clades
written        one tree as it is written, labels and all, for pictures and exports
random_trees   uniform random topologies, Yule trees
fitch          bit-parallel Fitch sets over packed sites
directional_sets  the sets behind every half-edge of trees side by side, kept up
parsimony      the parsimony score, randomised stepwise addition
parsimony_spr  parsimony_trees: the usual starts, improved by batched SPR
reference_parsimony  what they rest on, with NumPy; a device's is mltree.device.parsimony
"""
