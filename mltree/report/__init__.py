"""Reports of runs: terminal, log, HTML page, tables and pictures."""
