"""Tree search: batched SPR rounds, perturbation, starts side by side."""
