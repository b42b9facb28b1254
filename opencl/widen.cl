// Weights that come from the host as whole numbers of 16 bits, a quarter of their bytes.
#if FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double acc;
#else
typedef float acc;
#endif

__kernel void widen(__global const ushort *drawn, __global acc *weights, ulong first, ulong count) {
  const size_t n = get_global_id(0);
  if (n < count) weights[first + n] = drawn[n];
}
