// Where four work-items share the states of a lane's patterns (item q has states q, q + 4, q + 8
// ...), a warp has eight lanes and multiplies a matrix with all their vectors by its fp64 matrix
// unit:
//   C[8 lanes][8 rows of M] += A[8 lanes][4 terms] B[4 terms][8 rows of M]
// Item l of it gives A[l / 4][l % 4] and B[l % 4][l / 4] and gets C[l / 4][2 (l % 4)] and the next
// one (PTX ISA 8.5, mma.m8n8k4; m16n8k4 takes two patterns a lane at once). With rows q and q + 4
// of M for columns 2q and 2q + 1 of C, a product comes out shared as its vector went in.
#ifndef MATRIX_TILES_H
#define MATRIX_TILES_H

#include "lanes.h"

#if STATE_ITEMS != 4 || SINGLE || SITE_SYSTEMS || LANES % 8 != 0 || WIDTH > 2
#error "a warp multiplies fp64 vectors of eight lanes, of four work-items each, with one matrix"
#endif
#define WARP_LANES (WARP / STATE_ITEMS)
#define WARP_LANE (COLUMN % WARP_LANES)
#define TILE 2  // rows of M that a work-item gets at a time

static inline void multiply(double x, double entry, double *y, double *next) {
  __asm__ volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(*y), "+d"(*next)
                   : "d"(x), "d"(entry));
}

#if WIDTH == 1
#define MULTIPLY(x, entry, y) multiply(x, entry, y, y + 1)
#elif WIDE_PRODUCTS
#define MULTIPLY(x, entry, y)                                                                    \
  __asm__ volatile(                                                                              \
      "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, " \
      "%1, %2, %3};"                                                                             \
      : "+d"(y[0].s0), "+d"(y[1].s0), "+d"(y[0].s1), "+d"(y[1].s1)                               \
      : "d"(x.s0), "d"(x.s1), "d"(entry))
#else
#define MULTIPLY(x, entry, y)                        \
  multiply(x.s0, entry, (real *)y, (real *)(y + 1)); \
  multiply(x.s1, entry, (real *)y + 1, (real *)(y + 1) + 1)
#endif

// Rows STATE(2 t) and STATE(2 t + 1) of M x, for an M of so many rows.
VECTOR_FUNCTION void rows_times(__global const real *m, int rows, int t, const real_v x[HELD],
                                real_v y[TILE]) {
  const int row = 2 * STATE_ITEMS * t + WARP_LANE / 2 + WARP_LANE % 2 * STATE_ITEMS;
  __global const real *entries = m + min(row, rows - 1) * STATES + STATE_ITEM;
  y[0] = y[1] = 0;
  FOR_STATE(j) {
    MULTIPLY(x[j], entries[j * STATE_ITEMS], y);
  }
}

VECTOR_FUNCTION void tile_times(__global const real *m, int t, const real_v x[HELD],
                                real_v y[TILE]) {
  rows_times(m, STATES, t, x, y);
  UNROLLED(r, TILE) if (!IS_STATE(2 * t + r)) y[r] = 0;
}

static inline int item_apart(int x, int step) {
  int other;
  __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                   : "=r"(other)
                   : "r"(x), "r"(step));
  return other;
}

static inline double sum_apart(double x, int step) {
  const int2 halves = as_int2(x);
  return x + as_double((int2)(item_apart(halves.x, step), item_apart(halves.y, step)));
}

// The sum over the four, which all of them get; and the largest number of all.
VECTOR_FUNCTION real_v quad_sum(real_v x) {
#if WIDTH == 1
  return sum_apart(sum_apart(x, 1), 2);
#else
  return (real_v)(sum_apart(sum_apart(x.s0, 1), 2), sum_apart(sum_apart(x.s1, 1), 2));
#endif
}

VECTOR_FUNCTION count_v quad_max(count_v x) {
  UNROLLED(step, 2) {
#if WIDTH == 1
    x = max(x, item_apart(x, step + 1));
#else
    x = max(x, (count_v)(item_apart(x.s0, step + 1), item_apart(x.s1, step + 1)));
#endif
  }
  return x;
}

#endif
