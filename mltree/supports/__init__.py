"""What many trees say about one, about each other, and whether they are enough.

table       the distinct splits of trees, and which tree has which
metrics     Felsenstein's bootstrap proportions and transfer bootstrap expectation
consensus   strict, majority and extended majority consensus
distances   Robinson-Foulds distances, plain and weighted by lengths
bootstop    autoMRE: whether more replicates would change the supports
concordance what genes and sites say of each branch: gCF and sCF

and what resampled data say of trees and branches (the likelihoods are given: no device here):

resampling  replicates as rows of pattern weights, a random stream each
branch_tests  SH-aLRT, LBP, aLRT and aBayes of every inner branch
tree_tests  RELL proportions, KH, SH, weighted KH and SH, expected likelihood weights
unbiased    the AU test: bootstraps of ten sizes
battery     all tests of some trees, from one set of replicates

Letters: n trees, T taxa, C clades, S distinct splits, M occurrences, B = ceil(T/64) words.
"""
