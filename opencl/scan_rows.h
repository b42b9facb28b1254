// A step of the insertion scan where vectors of all states fill the registers: as few of them as
// can be are held, and a score is summed row by row of a P matrix.
#ifndef SCAN_ROWS_H
#define SCAN_ROWS_H

#include "scan_place.h"

// An operand as it is in memory: a CLA; of a tip, its codes.
VECTOR_FUNCTION count_v raw_load(const plf_t *s, const place_t *at, int operand, code_v codes,
                                 real_v x[HELD]) {
  if (TIP_LOOKUP && operand < 0) return (count_v)(0);
  return operand_load(s, operand, codes, at->block, at->k, x);
}

// y = y * (P[p] x), elementwise.
VECTOR_FUNCTION void raw_times(const plf_t *s, const place_t *at, int operand, code_v codes, int p,
                               const real_v x[HELD], real_v y[HELD]) {
  if (TIP_LOOKUP && operand < 0) {
    real_v tip[HELD];
    table_rows(tip_rows(s, p, at->block, at->k), codes, tip);
    FOR_STATE(i) y[i] *= tip[i];
  } else {
    across_times(s, p, at->block, at->k, x, y);
  }
}

// sum_i (P[p] near)_i (P[p] far)_i pendant_i
VECTOR_FUNCTION real_v meeting(const plf_t *s, const place_t *at, int operand, code_v codes, int p,
                               const real_v near[HELD], const real_v far[HELD],
                               const real_v pendant[HELD]) {
  if (!TIP_LOOKUP || operand >= 0)
    return across_meeting(s, p, at->block, at->k, near, far, pendant);
  real_v tip[HELD], sum = 0;
  table_rows(tip_rows(s, p, at->block, at->k), codes, tip);
  FOR_STATE(i) tip[i] *= pendant[i];
  across_times(s, p, at->block, at->k, near, tip);
  FOR_STATE(i) sum += tip[i];
  return sum;
}

// One side of a step: N from A and the other branch, then what is asked of N. Returns whether it
// left a term.
VECTOR_FUNCTION bool scan_side(const plf_t *s, const place_t *at, __global const int *side,
                               __global const int *other, int batch) {
  if (!IS_ASKED(side)) return false;
  real_v near[HELD], x[HELD];
  code_v codes = operand_codes(s, other[0], at->block);
  count_v count = raw_load(s, at, other[0], codes, x);
  count += stack_load(s, at->stack, at->level_in, at->k, near);
  raw_times(s, at, other[0], codes, other[SIDE_P], x, near);
  count = rescale(near, count);
  const bool scores = side[SIDE_OUTPUT] >= 0 && !at->stores;
  if (scores) {
    real_v pendant[HELD];
    codes = operand_codes(s, side[0], at->block);
    const count_v counts = raw_load(s, at, side[0], codes, x) +
                           stack_load(s, at->stack, PENDANT_LEVEL, at->k, pendant);
    const real_v term = meeting(s, at, side[0], codes, side[SIDE_HALF_P], near, x, pendant);
    leave_term(at, batch, term, count + counts);
  }
  if (side[SIDE_LEVEL] >= 0) {
    across(s, side[SIDE_P], at->block, at->k, near, x);
    stack_store(s, at->stack, side[SIDE_LEVEL], at->k, x, count);
  }
  if (side[SIDE_OUTPUT] >= 0 && at->stores)
    slot_store(s, side[SIDE_OUTPUT], at->block, at->k, near, count);
  return scores;
}

// The left side pushes above the level that both start from, so that the right one finds it
// unchanged.
VECTOR_FUNCTION void scan_step(const plf_t *s, const place_t *at, __global const int *step,
                               int batch) {
  __global const int *left = step + SCAN_STEP_LEFT, *right = step + SCAN_STEP_RIGHT;
  _Pragma("nounroll") for (int turn = 0; turn < 2; ++turn) {
    batch += scan_side(s, at, turn ? right : left, turn ? left : right, batch);
  }
}

#endif
