// The matrices of a walk's next step come into local memory while this one is computed: latency
// is what a walk waits for. A category's work-items fetch a pair of numbers each, for themselves.
// Where matrices are large, or on CPUs, they are read from where they are.
#ifndef STAGED_H
#define STAGED_H

#include "session.h"

#if LANES > 1 && STATES % 2 == 0 && TIP_ROW <= 2 * COLUMNS && CODES == 1 << STATES
#define STAGED
#define MATRIX_SPACE __local
#define SIDE_ROWS (2 * COLUMNS)  // numbers of a side, in one category
#define STAGED_REALS (2 * 2 * CATEGORIES * SIDE_ROWS)
#else
#define STAGED_REALS 0
#endif

#include "operand.h"

#ifdef STAGED
#ifdef __NV_CL_C_VERSION
#define sync_columns() __asm__ volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define sync_columns() barrier(CLK_LOCAL_MEM_FENCE)
#endif

typedef struct {
  real_pair left, right;
} ahead_t;

static inline real_pair part_fetch(const plf_t *s, int operand, int length, int block, int k) {
  const int pairs = (operand < 0 ? TIP_ROW : SQUARE) / 2;
  __global const real_pair *rows =
      (__global const real_pair *)branch_rows(s, operand, length, block, k);
  return rows[min(COLUMN, pairs - 1)];
}

static inline ahead_t ahead_fetch(const plf_t *s, int4 step, int block, int k) {
  const ahead_t ahead = {part_fetch(s, step.s0, step.s1, block, k),
                         part_fetch(s, step.s2, step.s3, block, k)};
  return ahead;
}

static inline __local real *side_rows(__local real *staged, int n, int side, int k) {
  return staged + (((n & 1) * 2 + side) * CATEGORIES + k) * SIDE_ROWS;
}

static inline void ahead_put(__local real *staged, int n, int k, ahead_t ahead) {
  if (n == 0) sync_columns();
  ((__local real_pair *)side_rows(staged, n, 0, k))[COLUMN] = ahead.left;
  ((__local real_pair *)side_rows(staged, n, 1, k))[COLUMN] = ahead.right;
  sync_columns();
}
#endif

#endif
