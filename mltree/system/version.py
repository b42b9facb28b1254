"""The version of mltree."""

__version__ = "0.1.0"
