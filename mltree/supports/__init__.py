"""Comparison of trees: splits and supports from sets of trees, tests from resampled site lnL.

table         distinct splits of trees, and the trees that have each
consensus     strict, majority and extended majority consensus; Robinson-Foulds distances
bootstrap     FBP and TBE; autoMRE, the test for enough replicates
ultrafast     the replicates of the ultrafast bootstrap (UFBoot2)
concordance   gene and site concordance factors, gCF and sCF

resampling    replicates as rows of pattern weights, a random stream each
branch_tests  SH-aLRT, LBP, aLRT and aBayes of every inner branch
tree_tests    RELL proportions, KH, SH, weighted KH and SH, ELW, AU

Likelihoods come in as arrays: nothing here computes one. Letters: n trees, T taxa, C clades, S
distinct splits, M occurrences, B = ceil(T/64) words.
"""
