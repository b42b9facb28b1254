"""Bayesian sampling: chains of trees and parameters, and what their samples tell.

priors         distributions of branch lengths and of model parameters, by name
model_space    parameters of a model as points, in which chains take symmetric steps
proposals      these steps, fitted to each rung of a ladder
tempering      ladders of heats, swaps, ln Z
sampler        burn-in and sampling
diagnostics    effective sample sizes, R-hat, ASDSF, burn-in, comparisons of runs
summaries      a posterior of several runs: splits, trees, parameters, consensus and MCC trees
mrbayes_files  samples of MrBayes, BEAST and RevBayes are read; MrBayes' files are written

Letters: R runs, N rungs, C chains, n samples of each run, V variables, T taxa, S splits.
"""
