"""Model choice: candidates side by side, parts at once, and parts merged."""
