"""What many trees say about one, about each other, and whether they are enough.

table       the distinct splits of trees, and which tree has which
metrics     Felsenstein's bootstrap proportions and transfer bootstrap expectation
consensus   strict, majority and extended majority consensus
distances   Robinson-Foulds distances, plain and weighted by lengths
bootstop    autoMRE: whether more replicates would change the supports

Letters: n trees, T taxa, C clades, S distinct splits, M occurrences, B = ceil(T/64) words.
"""
