// A step of the insertion scan where the vectors of both its branches fit the registers. A branch
// is crossed by way of its middle, P(t) = P(t/2) P(t/2): its middle is needed for the score
// anyway, and one matrix read from memory does for all.
#ifndef SCAN_VECTORS_H
#define SCAN_VECTORS_H

#include "scan_place.h"

// A branch's far end as seen from its middle.
VECTOR_FUNCTION count_v middle_load(const plf_t *s, const place_t *at, const int *side,
                                    real_v middle[HELD]) {
  return propagate(s, side[0], side[SIDE_HALF_P], at->block, at->k, middle);
}

VECTOR_FUNCTION void from_middle(const plf_t *s, const place_t *at, const int *side,
                                 const real_v middle[HELD], real_v end[HELD]) {
  across(s, side[SIDE_HALF_P], at->block, at->k, middle, end);
}

// One side of a step: N from A and the other branch, then what is asked of N. Returns whether it
// left a term.
VECTOR_FUNCTION bool scan_side(const plf_t *s, const place_t *at, const int *side,
                               const real_v far_middle[HELD], count_v far_count,
                               const real_v other[HELD], count_v other_count, int batch) {
  if (!IS_ASKED(side)) return false;
  real_v near[HELD], middle[HELD];
  count_v count = other_count + stack_load(s, at->stack, at->level_in, at->k, near);
  FOR_STATE(i) near[i] *= other[i];
  count = rescale(near, count);
  const bool scores = side[SIDE_OUTPUT] >= 0 && !at->stores;
  if (side[SIDE_OUTPUT] >= 0 && at->stores)
    slot_store(s, side[SIDE_OUTPUT], at->block, at->k, near, count);
  if (!scores && side[SIDE_LEVEL] < 0) return false;
  from_middle(s, at, side, near, middle);
  if (scores) {
    real_v pendant[HELD], term = 0;
    const count_v pendant_count = stack_load(s, at->stack, PENDANT_LEVEL, at->k, pendant);
    FOR_STATE(i) term += middle[i] * (far_middle[i] * pendant[i]);
    leave_term(at, batch, term, count + far_count + pendant_count);
  }
  if (side[SIDE_LEVEL] >= 0) {
    from_middle(s, at, side, middle, near);
    stack_store(s, at->stack, side[SIDE_LEVEL], at->k, near, count);
  }
  return scores;
}

// The left side pushes above the level that both start from, so that the right one finds it
// unchanged; only one branch's far end is held at a time.
VECTOR_FUNCTION void scan_step(const plf_t *s, const place_t *at, __global const int *step,
                               int batch) {
  int words[SCAN_STEP_WORDS];
  for (int w = 0; w < SCAN_STEP_WORDS / 4; ++w) vstore4(((__global const int4 *)step)[w], w, words);
  const int *left = words + SCAN_STEP_LEFT, *right = words + SCAN_STEP_RIGHT;
  real_v left_middle[HELD], right_middle[HELD], end[HELD];
  const count_v right_count = middle_load(s, at, right, right_middle);
  from_middle(s, at, right, right_middle, end);
  const count_v left_count = middle_load(s, at, left, left_middle);
  batch += scan_side(s, at, left, left_middle, left_count, end, right_count, batch);
  from_middle(s, at, left, left_middle, end);
  scan_side(s, at, right, right_middle, right_count, end, left_count, batch);
}

#endif
