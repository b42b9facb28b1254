"""Maximum-likelihood phylogenetics whose tree search lives on the device."""

__version__ = "0.1.0"
