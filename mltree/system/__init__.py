"""Ground of the program: the process and its surroundings, without phylogenetics.

errors          errors raised on purpose
events          events of a run as data
values          frozen dataclasses that are cheap to define; numbers in files and options
arrays          names of NumPy arrays in annotations
files           files written whole or not at all; standard streams
process         CPUs, threads, memory, isolated subprocesses, parallel maps, signals
ranks           processes that share the work of a run
rank_start      becoming one of several ranks
rank_processes  coordinator, peers, and what connects them: sockets, or MPI
"""

__version__ = "0.1.0"
