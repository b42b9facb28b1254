"""Substitution models: the grammar that names them, their values, their eigen systems.

grammar        model strings to models and back
names          names of models here and in other programs
substitution   the model as a value; rates of codons; mixtures; named nucleotide models
empirical      published matrices, and a user's
families       models of genotypes, of characters, of codons
rates          rates among sites: gamma, free rates, a rate for every site, invariable sites
rate_profiles  lnL of patterns as a function of their rate
parameters     free parameters as one vector, and models at vectors
partitioned    models of an alignment's parts
eigen          eigen systems and series of rate matrices
portable       exp, log, eigen systems with the same bits on every machine
"""
