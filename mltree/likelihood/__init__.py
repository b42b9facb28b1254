"""Likelihoods of trees on an engine: scores, branch lengths, insertions, shared requests.

Request                          of a search, joined with those of others
  -> TreeLikelihood              trees and cases to programs, in batches that fit
       AscertainedLikelihood     corrected for constant sites left out (+ASC)
       PerSiteLikelihood         one rate a pattern (+PSR)
  -> Engine                      runs programs: the reference, a device, shards
       JointEngine               an engine for each state count
"""
