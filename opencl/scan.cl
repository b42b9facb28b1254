// The insertion scan. A task is one pruned subtree S and one side of the place it was pruned
// from; its steps walk the target edges on that side depth first, with the near vectors
//   A_0 = P(join) root,  N = A_in * P(t_sibling) sibling,  A_out = P(t) N
// on a stack in the work-group's own memory, and score each edge split in half:
//   s0 = ln sum_k w_k sum_i pi_i (P(t/2) N)_i (P(t/2) F)_i (P(t_S) S)_i
#define TERMS 1
#define BATCH (LANES == 1 ? 1 : 8)  // insertions whose categories are summed together

#include "grid.h"
#include "operand.h"
#include "sums.h"

#define OWN_OP OP_SCAN
#define WORKER_ROWS 1
#define LOCAL_TERMS (BATCH * CATEGORIES * LANES)
#define LOCAL_LANES (BATCH * LANES)
#define LOCAL_CELLS BATCH
#define MY_CATEGORIES (CATEGORIES / CATEGORY_ITEMS)
#define MINE(k) (CATEGORY_ITEMS == 1 ? (k) : 0)

static inline size_t stack_row(const plf_t *s, int level, int k) {
  return ((size_t)get_group_id(0) * s->stack_levels + level) * CATEGORIES + k;
}

VECTOR_FUNCTION void push(const plf_t *s, int level, int k, const real_v x[STATES], count_v count) {
  const size_t row = stack_row(s, level, k);
  FOR_STATE(i) cla_store(s->stack, row, i, x[i]);
  count_store(s->stack_scaler, row, count);
}

// N of a step, and what the step asks to keep of it.
VECTOR_FUNCTION count_v near_vector(const plf_t *s, __global const int *step, int block, int k,
                                    real_v near[STATES]) {
  const size_t row = stack_row(s, step[SCAN_STEP_LEVEL_IN], k);
  count_v count = count_load(s->stack_scaler, row) +
                  propagate(s, step[SCAN_STEP_SIBLING], step[SCAN_STEP_SIBLING_P], block, k, near);
  FOR_STATE(i) near[i] *= cla_load(s->stack, row, i);
  count = rescale(near, count);
  if (step[SCAN_STEP_STORE] >= 0) slot_store(s, step[SCAN_STEP_STORE], block, k, near, count);
  if (step[SCAN_STEP_LEVEL_OUT] >= 0) {
    real_v above[STATES];
    matvec(pmatrix_row(s, step[SCAN_STEP_FULL_P], block, k), near, above);
    push(s, step[SCAN_STEP_LEVEL_OUT], k, above, count);
  }
  return count;
}

// Category k's share of the likelihood with the subtree in the middle of the target edge.
VECTOR_FUNCTION real_v insertion_term(const plf_t *s, __global const int *step,
                                      __global const real *model, int block, int k,
                                      const real_v near[STATES], const real_v pendant[STATES],
                                      count_v *count) {
  real_v a[STATES], b[STATES], sum = 0;
  matvec(pmatrix_row(s, step[SCAN_STEP_HALF_P], block, k), near, a);
  *count += propagate(s, step[SCAN_STEP_FAR], step[SCAN_STEP_HALF_P], block, k, b);
  FOR_STATE(i) sum += model[MODEL_FREQUENCIES + i] * (a[i] * (b[i] * pendant[i]));
  return model[MODEL_WEIGHTS + k] * sum;
}

// Sums a batch of insertions over categories and lanes into their cells.
static inline void flush(const plf_t *s, __local const int *cells, int batch, int block, int chunk,
                         __local real_v *terms, __local count_v *counts, __local acc_v *lanes) {
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int q = ITEM; q < batch * LANES; q += TEAM) {
    acc_v sum[TERMS];
    const count_v count = sum_categories(terms, counts, q / LANES, q % LANES, sum);
    lanes[q] = pattern_weights(s, block, q % LANES) * scaled_log(sum[0], count);
  }
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int b = ITEM; b < batch; b += TEAM)
    partial_add(s, cells[b], chunk, block == chunk * s->chunk_blocks,
                lanes_sum((__local const acc *)lanes + b * VW));
  sync_group(CLK_LOCAL_MEM_FENCE);
}

static inline void scan_block(const plf_t *s, __global const int *task, int chunk, int block,
                              __local real_v *terms, __local count_v *counts, __local acc_v *lanes,
                              __local int *cells) {
  __global const real *model = model_row(s, task[SCAN_TASK_MODEL], block);
  real_v pendant[MY_CATEGORIES][STATES];
  count_v pendant_count[MY_CATEGORIES];
  FOR_CATEGORY(k) {
    real_v root[STATES];
    push(s, 0, k, root, propagate(s, task[SCAN_TASK_ROOT], task[SCAN_TASK_JOIN_P], block, k, root));
    pendant_count[MINE(k)] = propagate(s, task[SCAN_TASK_PENDANT], task[SCAN_TASK_PENDANT_P], block,
                                       k, pendant[MINE(k)]);
  }
  int batch = 0;
  for (int n = 0; n < task[SCAN_TASK_STEPS]; ++n) {
    __global const int *step = s->program + task[SCAN_TASK_FIRST_STEP] + n * SCAN_STEP_WORDS;
    const int cell = step[SCAN_STEP_CELL];
    FOR_CATEGORY(k) {
      real_v near[STATES];
      count_v count = near_vector(s, step, block, k, near);
      if (cell < 0) continue;
      count += pendant_count[MINE(k)];
      terms[TERM_AT(batch, 0, k, LANE)] =
          insertion_term(s, step, model, block, k, near, pendant[MINE(k)], &count);
      counts[COUNT_AT(batch, k, LANE)] = count;
    }
    if (cell < 0) continue;
    if (ITEM == 0) cells[batch] = cell;
    if (++batch == BATCH) {
      flush(s, cells, batch, block, chunk, terms, counts, lanes);
      batch = 0;
    }
  }
  if (batch > 0) flush(s, cells, batch, block, chunk, terms, counts, lanes);
}

static inline void own_stage(const plf_t *s, __global const int *tasks, int count,
                             __local real_v *terms, __local count_v *counts, __local acc_v *lanes,
                             __local int *cells, __local ulong *book, ulong *since) {
  const long jobs = (long)count * s->chunks;
  for (long job = get_group_id(0); job < jobs; job += get_num_groups(0)) {
    const int chunk = job % s->chunks;
    __global const int *task = tasks + job / s->chunks * SCAN_TASK_WORDS;
    const int end = min((chunk + 1) * s->chunk_blocks, s->blocks);
    for (int block = chunk * s->chunk_blocks; block < end; ++block)
      scan_block(s, task, chunk, block, terms, counts, lanes, cells);
  }
  mark(book, since, FN_SCAN);
}

#include "worker.h"
