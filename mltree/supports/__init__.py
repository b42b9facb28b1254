"""Comparison of trees: splits and supports from sets of trees, tests from resampled site lnL.

consensus     distinct splits of trees; consensus trees; Robinson-Foulds distances
bootstrap     FBP and TBE; autoMRE, the test for enough replicates; ultrafast bootstrap (UFBoot2)
concordance   gene and site concordance factors, gCF and sCF
resampling    replicates as rows of pattern weights, a random stream each
tree_tests    KH, SH, weighted KH and SH, ELW, AU of trees; SH-aLRT, LBP, aLRT, aBayes of branches

Likelihoods come in as arrays: nothing here computes one. Letters: n trees, T taxa, C clades, S
distinct splits, M occurrences, B = ceil(T/64) words.
"""
