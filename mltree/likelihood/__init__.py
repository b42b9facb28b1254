"""Programs of likelihood operations: what is computed, on which tree, by which engine."""
