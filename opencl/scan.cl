// The insertion scan. A task is one pruned subtree S and one side of the place it was pruned
// from. Its steps walk the tree on that side depth first. A step arrives at a node with the vector
// A of all that lies behind it; of the branches t and u ahead, with F and G beyond them,
//   N = A * P(u) G                                                      the near vector of t
//   s0 = ln sum_k w_k sum_i pi_i (P(t/2) N)_i (P(t/2) F)_i (P(t_S) S)_i    the score of t
//   A' = P(t) N                                    the vector with which t's far end is reached
// and likewise for u. The vectors A wait on the work-group's own stack, above P(t_S) S.
// Instead of a score, a side may ask to keep N in a slot.
#define TERMS 1
#define BATCH (LANES == 1 ? 2 : 8 / WIDTH)  // insertions whose categories are summed together
#define TAKES_SPANS

#include "grid.h"
#include "span.h"
#include "stack.h"
#include "sums.h"

#define OWN_OP OP_SCAN
#define WORKER_ROWS 1
#define LOCAL_TERMS (BATCH * SHARES * COLUMNS)
#define LOCAL_LANES (BATCH * COLUMNS)
#define LOCAL_CELLS (2 * BATCH + 1)  // outputs of two batches, and the job

#if STATES <= 8
#include "scan_vectors.h"
#else
#include "scan_rows.h"
#endif

// Sums a batch of insertions over categories and lanes into their cells. What it reads last, the
// lanes' sums and the cells, stays until the next flush but one is past its first barrier.
static inline void flush(const plf_t *s, __local const int *cells, int batch, int weights,
                         chunks_t of, int span, int n, __local real_v *terms,
                         __local count_v *counts, __local acc_v *lanes) {
  const int block = column_block(s, of, span, n);
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int b = CATEGORY_FIRST * STATE_ITEMS + STATE_ITEM; b < batch;
       b += CATEGORY_ITEMS * STATE_ITEMS) {
    acc_v sum[TERMS];
    const count_v count = sum_categories(terms, counts, b, COLUMN, sum);
    lanes[b * COLUMNS + COLUMN] = pattern_weights(s, weights, block) * scaled_log(sum[0], count);
  }
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int q = ITEM; q < batch * SPAN; q += TEAM) {
    const int chunk = span_chunk(of, span, q % SPAN);
    if (has_block(s, of, chunk, n))
      partial_add(s, cells[q / SPAN], chunk, n == 0,
                  lanes_sum((__local const acc *)lanes + q * VW));
  }
}

// A walk's start in category k: on the stack the pruned subtree as seen from across its
// branch, times pi and the category's weight, and the vector of all that lies behind.
VECTOR_FUNCTION void set_out(const plf_t *s, __global const int *task, int block, int k,
                             __local real_v *stack) {
  __global const real *model = model_row(s, task[SCAN_TASK_MODEL], block);
  const real weight = model[MODEL_WEIGHTS + k];
  real_v x[HELD];
  count_v count = propagate(s, task[SCAN_TASK_ROOT], task[SCAN_TASK_MERGED_P], block, k, x);
  stack_store(s, stack, ROOT_LEVEL, k, x, count);
  count = propagate(s, task[SCAN_TASK_PENDANT], task[SCAN_TASK_PENDANT_P], block, k, x);
  FOR_STATE(i) x[i] *= weight * FREQUENCY(s, model, block, k, i);
  stack_store(s, stack, PENDANT_LEVEL, k, x, count);
}

// A task on the n-th block of every chunk of a span. Nothing is read ahead: registers are scarcer
// than time.
static inline void scan_blocks(const plf_t *s, __global const int *task, bool stores, chunks_t of,
                               int span, int n, __local real_v *stack, __local real_v *terms,
                               __local count_v *counts, __local acc_v *lanes,
                               __local int *own_cells) {
  const int block = column_block(s, of, span, n), weights = task[SCAN_TASK_WEIGHTS];
  FOR_CATEGORY(k) set_out(s, task, block, k, stack);
  __global const int *step = s->program + task[SCAN_TASK_FIRST_STEP];
  __local int *cells = own_cells;
  int batch = 0;
  for (int left = task[SCAN_TASK_STEPS]; left > 0; --left, step += SCAN_STEP_WORDS) {
    const int level_in = step[SCAN_STEP_LEVEL_IN];
    FOR_CATEGORY(k) {
      const place_t place = {block, k, level_in, stores, stack, terms, counts};
      scan_step(s, &place, step, batch);
    }
    if (stores) continue;
    const int outputs[2] = {step[SCAN_STEP_LEFT_OUTPUT], step[SCAN_STEP_RIGHT_OUTPUT]};
    for (int side = 0; side < 2; ++side) {
      if (outputs[side] < 0) continue;
      if (ITEM == 0) cells[batch] = outputs[side];
      ++batch;
    }
    if (batch > BATCH - 2) {
      flush(s, cells, batch, weights, of, span, n, terms, counts, lanes);
      cells = cells == own_cells ? own_cells + BATCH : own_cells;
      batch = 0;
    }
  }
  if (batch > 0) flush(s, cells, batch, weights, of, span, n, terms, counts, lanes);
  sync_group(CLK_LOCAL_MEM_FENCE);
}

// Tasks of one span follow one another, so that the CLAs which they share stay in the cache.
static inline void own_stage(const plf_t *s, __global const int *tasks, int count, int stores,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const uint jobs = count * span_count(s);
  uint ahead = GROUP, job;
  while ((job = next_job(s, &ahead, cells + 2 * BATCH)) < jobs) {
    const int span = job / count;
    __global const int *task = tasks + job % count * SCAN_TASK_WORDS;
    const chunks_t of = case_chunks(s, task[SCAN_TASK_CASE]);
    if (!has_span(of, span)) continue;
    for (int n = 0, blocks = span_blocks(s, of, span); n < blocks; ++n)
      scan_blocks(s, task, stores, of, span, n, stack, terms, counts, lanes, cells);
  }
  mark(book, since, FN_SCAN);
}

#include "worker.h"
