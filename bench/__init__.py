"""Benchmarks: every claim about speed or quality, as a command that reruns it.

provenance  what a result was measured on, and with what
results     results as JSON, one file a run
data        alignments and starting trees: shipped, simulated or given
processes   child processes with a clock and a deadline
contenders  mltree's layouts and devices, ready to search
once        the child process of one mltree search
rivals      other programs, run as their users run them
judge       one scorer for the trees of all programs
table1, search, kernels, scale, reach, precision, golden   the benchmarks
render      results to Markdown, plots and the README's tables
"""
