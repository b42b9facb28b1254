"""Bayesian samples: trees and parameters of Markov chains, and their summaries.

diagnostics    effective sample sizes, R-hat, ASDSF, burn-in, comparisons of runs
summaries      a posterior of several runs: splits, trees, parameters, consensus and MCC trees
mrbayes_files  samples of MrBayes, BEAST and RevBayes are read; MrBayes' files are written

Letters: R runs, n samples of each, V variables, T taxa, S splits.
"""
