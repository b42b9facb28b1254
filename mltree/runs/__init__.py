"""What a command runs, from where it computes to what it found: a search, replicates, loci."""
