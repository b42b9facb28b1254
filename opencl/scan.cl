// The insertion scan. A task is one pruned subtree S and one side of the place it was pruned
// from; its steps walk the target edges on that side depth first, with the near vectors
//   A_0 = P(join) root,  N = A_in * P(t_sibling) sibling,  A_out = P(t) N
// on the work-group's own stack, and score each edge split in half:
//   s0 = ln sum_k w_k sum_i pi_i (P(t/2) N)_i (P(t/2) F)_i (P(t_S) S)_i
// or keep N in a slot.
#define TERMS 1
#define BATCH (LANES == 1 ? 1 : 8 / WIDTH)  // insertions whose categories are summed together
#define SPAN (LANES > 1 && LANES < GPU_COLUMNS ? GPU_COLUMNS / LANES : 1)

#include "grid.h"
#include "span.h"
#include "stack.h"
#include "sums.h"

#define OWN_OP OP_SCAN
#define WORKER_ROWS 1
#define LOCAL_TERMS (BATCH * CATEGORIES * COLUMNS)
#define LOCAL_LANES (BATCH * COLUMNS)
#define LOCAL_CELLS BATCH
#define MY_CATEGORIES (CATEGORIES / CATEGORY_ITEMS)
#define MINE(k) (CATEGORY_ITEMS == 1 ? (k) : 0)
#define FETCH_AHEAD (STATES <= 8)  // registers hold both operands of a step

// sum_i (P near)_i (P far)_i pendant_i
VECTOR_FUNCTION real_v meeting(__global const real *p, const real_v near[STATES],
                               const real_v far[STATES], bool far_is_tip,
                               const real_v pendant[STATES]) {
  if (!TIP_LOOKUP || !far_is_tip) return matvec_meeting(p, near, far, pendant);
  real_v x[STATES], sum = 0;  // a tip's vector comes with P in it
  FOR_STATE(i) x[i] = far[i] * pendant[i];
  matvec_times(p, near, x);
  FOR_STATE(i) sum += x[i];
  return sum;
}

// One step in category k; returns the likelihood's share and its count where it asks for a score.
VECTOR_FUNCTION real_v scan_step(const plf_t *s, const int *step, bool scores, bool keeps,
                                 code_v sibling_codes, code_v far_codes, int block, int k,
                                 const real_v pendant[STATES], __local real_v *stack,
                                 count_v *count) {
  const int sibling = step[SCAN_STEP_SIBLING], far = step[SCAN_STEP_FAR];
  const int half_p = step[SCAN_STEP_HALF_P], sibling_p = step[SCAN_STEP_SIBLING_P];
  real_v near[STATES], above[STATES], sibling_x[STATES], far_x[STATES], term = 0;
  count_v near_count = fetch(s, sibling, sibling_codes, sibling_p, block, k, sibling_x);
  count_v far_count = 0;
  if (FETCH_AHEAD && scores) far_count = fetch(s, far, far_codes, half_p, block, k, far_x);
  near_count += stack_load(s, stack, step[SCAN_STEP_LEVEL_IN], k, near);
  cross_times(s, sibling, sibling_p, block, k, sibling_x, near);
  near_count = rescale(near, near_count);
  if (!FETCH_AHEAD && scores) far_count = fetch(s, far, far_codes, half_p, block, k, far_x);
  if (scores) term = meeting(pmatrix_row(s, half_p, block, k), near, far_x, far < 0, pendant);
  if (step[SCAN_STEP_LEVEL_OUT] >= 0) {
    matvec(pmatrix_row(s, step[SCAN_STEP_FULL_P], block, k), near, above);
    stack_store(s, stack, step[SCAN_STEP_LEVEL_OUT], k, above, near_count);
  }
  if (keeps) slot_store(s, step[SCAN_STEP_OUTPUT], block, k, near, near_count);
  *count = near_count + far_count;
  return term;
}

// Sums a batch of insertions over categories and lanes into their cells.
static inline void flush(const plf_t *s, __local const int *cells, int batch, int span, int n,
                         __local real_v *terms, __local count_v *counts, __local acc_v *lanes) {
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int q = ITEM; q < batch * COLUMNS; q += TEAM) {
    const int column = q % COLUMNS, block = chunk_block(s, column_chunk(span, column), n);
    acc_v sum[TERMS];
    const count_v count = sum_categories(terms, counts, q / COLUMNS, column, sum);
    lanes[q] = pattern_weights(s, block, column % LANES) * scaled_log(sum[0], count);
  }
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int q = ITEM; q < batch * SPAN; q += TEAM) {
    const int chunk = span * SPAN + q % SPAN;
    if (has_block(s, chunk, n))
      partial_add(s, cells[q / SPAN], chunk, n == 0,
                  lanes_sum((__local const acc *)lanes + q * VW));
  }
  sync_group(CLK_LOCAL_MEM_FENCE);
}

// A walk's start in category k: level 0 of the stack, and the pruned subtree as seen from across
// its branch, times pi and the category's weight. Returns the subtree's count.
VECTOR_FUNCTION count_v set_out(const plf_t *s, __global const int *task, int block, int k,
                                __local real_v *stack, real_v pendant[STATES]) {
  __global const real *model = model_row(s, task[SCAN_TASK_MODEL], block);
  const real weight = model[MODEL_WEIGHTS + k];
  real_v root[STATES];
  const count_v count = propagate(s, task[SCAN_TASK_ROOT], task[SCAN_TASK_JOIN_P], block, k, root);
  stack_store(s, stack, 0, k, root, count);
  const count_v pendant_count =
      propagate(s, task[SCAN_TASK_PENDANT], task[SCAN_TASK_PENDANT_P], block, k, pendant);
  FOR_STATE(i) pendant[i] *= weight * model[MODEL_FREQUENCIES + i];
  return pendant_count;
}

static inline void step_load(__global const int *steps, int n, int step[SCAN_STEP_WORDS]) {
  __global const int4 *halves = (__global const int4 *)(steps + n * SCAN_STEP_WORDS);
  vstore4(halves[0], 0, step);
  vstore4(halves[1], 1, step);
}

// A task on the n-th block of every chunk of a span. Steps are read ahead, and their tips' codes.
static inline void scan_blocks(const plf_t *s, __global const int *task, bool stores, int span,
                               int n, __local real_v *stack, __local real_v *terms,
                               __local count_v *counts, __local acc_v *lanes, __local int *cells) {
  const int chunk = column_chunk(span, COLUMN), block = chunk_block(s, chunk, n);
  const bool present = has_block(s, chunk, n);
  __global const int *steps = s->program + task[SCAN_TASK_FIRST_STEP];
  real_v pendant[MY_CATEGORIES][STATES];
  count_v pendant_count[MY_CATEGORIES];
  FOR_CATEGORY(k) pendant_count[MINE(k)] = set_out(s, task, block, k, stack, pendant[MINE(k)]);
  const int last = task[SCAN_TASK_STEPS] - 1;
  int next[SCAN_STEP_WORDS], batch = 0;
  step_load(steps, 0, next);
  code_v next_sibling = operand_codes(s, next[SCAN_STEP_SIBLING], block);
  code_v next_far = operand_codes(s, next[SCAN_STEP_FAR], block);
  for (int at = 0; at <= last; ++at) {
    int step[SCAN_STEP_WORDS];
    for (int word = 0; word < SCAN_STEP_WORDS; ++word) step[word] = next[word];
    const code_v sibling = next_sibling, far = next_far;
    step_load(steps, min(at + 1, last), next);
    const int output = step[SCAN_STEP_OUTPUT];
    const bool scores = output >= 0 && !stores, keeps = output >= 0 && stores && present;
    FOR_CATEGORY(k) {
      count_v count;
      const real_v term = scan_step(s, step, scores, keeps, sibling, far, block, k,
                                    pendant[MINE(k)], stack, &count);
      terms[TERM_AT(batch, 0, k, COLUMN)] = term;
      counts[COUNT_AT(batch, k, COLUMN)] = count + pendant_count[MINE(k)];
    }
    next_sibling = operand_codes(s, next[SCAN_STEP_SIBLING], block);
    next_far = operand_codes(s, next[SCAN_STEP_FAR], block);
    if (!scores) continue;
    if (ITEM == 0) cells[batch] = output;
    if (++batch == BATCH) {
      flush(s, cells, batch, span, n, terms, counts, lanes);
      batch = 0;
    }
  }
  if (batch > 0) flush(s, cells, batch, span, n, terms, counts, lanes);
}

// Tasks of one span follow one another, so that the CLAs which they share stay in the cache.
static inline void own_stage(const plf_t *s, __global const int *tasks, int count, int stores,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const long jobs = (long)count * span_count(s);
  for (long job = get_group_id(0); job < jobs; job += get_num_groups(0)) {
    const int span = job / count;
    __global const int *task = tasks + job % count * SCAN_TASK_WORDS;
    for (int n = 0; n < s->chunk_blocks; ++n)
      scan_blocks(s, task, stores, span, n, stack, terms, counts, lanes, cells);
  }
  mark(book, since, FN_SCAN);
}

#include "worker.h"
