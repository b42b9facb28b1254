// newview: the CLA of a node from its two children.
//   cla[dst] = (P[left_p] left) * (P[right_p] right), elementwise, for every pattern and category
#ifndef NEWVIEW_H
#define NEWVIEW_H

#include "operand.h"

VECTOR_FUNCTION void newview(const plf_t *s, __global const int *record, int block, int first) {
  FOR_CATEGORY_FROM(first, k) {
    const int left = record[NEWVIEW_LEFT], left_p = record[NEWVIEW_LEFT_P];
    const int right = record[NEWVIEW_RIGHT], right_p = record[NEWVIEW_RIGHT_P];
    real_v x[HELD], left_x[HELD], right_x[HELD];
    const code_v left_codes = operand_codes(s, left, block);
    const code_v right_codes = operand_codes(s, right, block);
    count_v count = fetch(s, left, left_codes, left_p, block, k, left_x);
    count += fetch(s, right, right_codes, right_p, block, k, right_x);
    cross(s, left, left_p, block, k, left_x, x);
    cross_times(s, right, right_p, block, k, right_x, x);
    count = rescale(x, count);
    slot_store(s, record[NEWVIEW_DST], block, k, x, count);
  }
}

// One level: its nodes do not depend on each other, so rows take them side by side.
static inline void newview_level(const plf_t *s, __global const int *records, int count,
                                 int first_block, int last_block, int first_category) {
  for (int n = ROW; n < count; n += ROWS)
    for (int block = first_block; block < last_block; ++block)
      newview(s, records + n * NEWVIEW_WORDS, block, first_category);
#if ROWS > 1  // a lone row reads only what the same work-items wrote
  sync_group(CLK_GLOBAL_MEM_FENCE);
#endif
}

// As many of the next runs as are levels, some categories through all of them; returns how many.
static inline int newview_runs(const plf_t *s, __global const int *runs, int count, int first_block,
                               int last_block) {
  int levels = 0;
  while (levels < count && runs[levels * RUN_WORDS + RUN_KIND] == DO_NEWVIEW) ++levels;
  for (int k = 0; k < CATEGORIES; k += CATEGORIES_AT_ONCE)
    for (int r = 0; r < levels; ++r) {
      __global const int *run = runs + r * RUN_WORDS;
      newview_level(s, s->program + run[RUN_FIRST], run[RUN_COUNT], first_block, last_block, k);
    }
  return levels;
}

#endif
