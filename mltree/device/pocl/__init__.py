"""PoCL, the OpenCL of CPUs: what it needs to be told, and a linker for its kernels."""
