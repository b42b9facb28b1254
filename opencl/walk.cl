// lnL of trees. A walk takes a tree's nodes in post-order: the result of the last step stays in
// registers, and results that wait for their sibling stand on the work-group's own stack. At the
// end, across the branch of one tip,
//   lnL = sum_patterns weight ln sum_k w_k sum_i pi_i x_i (P(t) tip)_i
// or, where it walked a piece of a tree, its last result is kept for the walk that goes on from it.
#define TERMS 1
#define TAKES_SPANS

#include "grid.h"
#include "span.h"
#include "stack.h"
#include "sums.h"

#define OWN_OP OP_WALK
#define WORKER_ROWS 1
#define LOCAL_TERMS (SHARES * COLUMNS)
#define LOCAL_LANES COLUMNS
#define LOCAL_CELLS 1

// All steps of a walk on one block in category k; returns the count of the last result x. Steps
// are read two ahead, and tips' codes one.
VECTOR_FUNCTION count_v walk_steps(const plf_t *s, __global const int *walk, int block, int k,
                                   __local real_v *stack, real_v x[HELD]) {
  __global const int4 *steps = (__global const int4 *)(s->program + walk[WALK_FIRST_STEP]);
  const int last = walk[WALK_STEPS] - 1;
  int4 next = steps[0], after = steps[min(1, last)];
  code_v next_left_codes = operand_codes(s, next.s0, block);
  code_v next_right_codes = operand_codes(s, next.s2, block);
  count_v count = 0;
  int waiting = -1;  // level of the result that waits on top; -1 before there is any
  FOR_STATE(i) x[i] = 1;
  for (int n = 0; n <= last; ++n) {
    const int left = next.s0, left_p = next.s1, right = next.s2, right_p = next.s3;
    const code_v left_codes = next_left_codes, right_codes = next_right_codes;
    next = after;
    after = steps[min(n + 2, last)];
    next_left_codes = operand_codes(s, next.s0, block);
    next_right_codes = operand_codes(s, next.s2, block);
    real_v left_y[HELD], right_y[HELD];
    if (right == RESULT) {
      real_v left_x[HELD];
      count += stack_load(s, stack, --waiting, k, left_x);
      across(s, left_p, block, k, left_x, left_y);
      across(s, right_p, block, k, x, right_y);
    } else {
      const count_v right_count = seen(s, right, right_codes, right_p, block, k, right_y);
      if (left == RESULT) {
        across(s, left_p, block, k, x, left_y);
      } else {  // neither is: the last result waits
        if (waiting >= 0) stack_store(s, stack, waiting, k, x, count);
        ++waiting;
        count = seen(s, left, left_codes, left_p, block, k, left_y);
      }
      count += right_count;
    }
    FOR_STATE(i) x[i] = left_y[i] * right_y[i];
    count = rescale(x, count);
  }
  return count;
}

// Category k's share of the likelihood.
VECTOR_FUNCTION void walk_terms(const plf_t *s, __global const int *walk, int block, int k,
                                __local real_v *stack, __local real_v *terms,
                                __local count_v *counts) {
  __global const real *model = model_row(s, walk[WALK_MODEL], block);
  real_v x[HELD], tip[HELD], sum = 0;
  const count_v count = walk_steps(s, walk, block, k, stack, x);
  leave_count(counts, 0, k, COLUMN, count);
  propagate(s, walk[WALK_TIP], walk[WALK_P], block, k, tip);
  FOR_STATE(i) sum += FREQUENCY(s, model, block, k, i) * x[i] * tip[i];
  const real_v own[TERMS] = {model[MODEL_WEIGHTS + k] * sum};
  leave_terms(terms, counts, 0, k, COLUMN, own, count);
}

// A piece of a tree, up to the result that is kept.
static inline void walk_piece(const plf_t *s, __global const int *walk, chunks_t of, int span,
                              __local real_v *stack) {
  for (int n = 0, blocks = span_blocks(s, of, span); n < blocks; ++n) {
    const int block = column_block(s, of, span, n);
    FOR_CATEGORY(k) {
      real_v x[HELD];
      const count_v count = walk_steps(s, walk, block, k, stack, x);
      slot_store(s, walk[WALK_SLOT], block, k, x, count);
    }
  }
}

static inline void walk_span(const plf_t *s, __global const int *walk, bool sites, chunks_t of,
                             int span, __local real_v *stack, __local real_v *terms,
                             __local count_v *counts, __local acc_v *lanes) {
  acc_v lnl = 0;
  for (int n = 0, blocks = span_blocks(s, of, span); n < blocks; ++n) {
    const int block = column_block(s, of, span, n);
    FOR_CATEGORY(k) walk_terms(s, walk, block, k, stack, terms, counts);
    sync_group(CLK_LOCAL_MEM_FENCE);
    if (SUMS_UP && column_has_block(s, of, span, n)) {
      acc_v sum[TERMS];
      const count_v count = sum_categories(terms, counts, 0, COLUMN, sum);
      const acc_v own = scaled_log(sum[0], count);
      if (sites) site_lnl_store(s, walk[WALK_CASE], block, own);
      lnl += pattern_weights(s, walk[WALK_WEIGHTS], block) * own;
    }
    sync_group(CLK_LOCAL_MEM_FENCE);
  }
  if (SUMS_UP) lanes[COLUMN] = lnl;
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int q = ITEM; q < SPAN; q += TEAM)
    if (span_chunk(of, span, q) < of.end)
      partial_add(s, walk[WALK_CELL], span_chunk(of, span, q), true,
                  lanes_sum((__local const acc *)lanes + q * VW));
  sync_group(CLK_LOCAL_MEM_FENCE);
}

// The longest pieces come first, each with all of its spans, so that shares come out even.
static inline void own_stage(const plf_t *s, __global const int *walks, int count, int sites,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const long spans = span_count(s), jobs = count * spans;
  for (long job = GROUP; job < jobs; job += GROUPS) {
    __global const int *walk = walks + job / spans * WALK_WORDS;
    const chunks_t of = case_chunks(s, walk[WALK_CASE]);
    const int span = job % spans;
    if (!has_span(of, span)) continue;
    if (walk[WALK_SLOT] != NO_CELL)
      walk_piece(s, walk, of, span, stack);
    else
      walk_span(s, walk, sites, of, span, stack, terms, counts, lanes);
  }
  mark(book, since, FN_NEWVIEW);
}

#include "worker.h"
