"""Ground of the program: the process and its surroundings, without phylogenetics.

contract        enums, records and limits that Python and OpenCL share
errors          errors raised on purpose
events          events of a run as data
values          frozen dataclasses that are cheap to define; numbers in files and options
arrays          names of NumPy arrays in annotations
files           files written whole or not at all; standard streams
process         CPUs, threads, memory, isolated subprocesses, parallel maps
signals         ending on SIGINT, SIGTERM and SIGHUP
ranks           processes that share the work of a run
rank_start      becoming one of several ranks
rank_processes  coordinator, peers, and sockets between them
mpi             transport between ranks that MPI has launched
"""
