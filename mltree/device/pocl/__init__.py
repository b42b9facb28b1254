"""PoCL, the OpenCL runtime of CPUs, kept from ending the process; see README.md in this folder."""
