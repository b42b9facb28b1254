// The insertion scan. A task is one pruned subtree S and one side of the place it was pruned
// from. Its steps walk the tree on that side depth first. A step arrives at a node with the vector
// A of all that lies behind it; of the branches t and u ahead, with F and G beyond them,
//   N = A * P(u) G                                                      the near vector of t
//   s0 = ln sum_k w_k sum_i pi_i (P(t/2) N)_i (P(t/2) F)_i (P(t_S) S)_i    the score of t
//   A' = P(t) N                                    the vector with which t's far end is reached
// and likewise for u. The vectors A wait on the work-group's own stack. Instead of a score, a side
// may ask to keep N in a slot.
#define TERMS 1
#define BATCH (LANES == 1 ? 2 : 8 / WIDTH)  // insertions whose categories are summed together
#define TAKES_SPANS

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

// A side of a step: its fields in the record, from the operand on.
#define LEFT SCAN_STEP_LEFT
#define RIGHT SCAN_STEP_RIGHT
#define SIDE_WORDS (RIGHT - LEFT)
#define SIDE_P (SCAN_STEP_LEFT_P - LEFT)
#define SIDE_HALF_P (SCAN_STEP_LEFT_HALF_P - LEFT)
#define SIDE_LEVEL (SCAN_STEP_LEFT_LEVEL - LEFT)
#define SIDE_OUTPUT (SCAN_STEP_LEFT_OUTPUT - LEFT)

// An operand as it is in memory: a CLA; of a tip, its codes.
VECTOR_FUNCTION count_v raw_load(const plf_t *s, int operand, code_v codes, int block, int k,
                                 real_v x[STATES]) {
  if (TIP_LOOKUP && operand < 0) return (count_v)(0);
  return operand_load(s, operand, codes, block, k, x);
}

// y = y * (P[length] x), elementwise.
VECTOR_FUNCTION void raw_times(const plf_t *s, int operand, code_v codes, int length, int block,
                               int k, const real_v x[STATES], real_v y[STATES]) {
  if (TIP_LOOKUP && operand < 0) {
    real_v tip[STATES];
    table_rows(tip_rows(s, length, block, k), codes, tip);
    FOR_STATE(i) y[i] *= tip[i];
  } else {
    matvec_times(pmatrix_row(s, length, block, k), x, y);
  }
}

// sum_i (P[length] near)_i (P[length] far)_i pendant_i
VECTOR_FUNCTION real_v meeting(const plf_t *s, int operand, code_v codes, int length, int block,
                               int k, const real_v near[STATES], const real_v far[STATES],
                               const real_v pendant[STATES]) {
  __global const real *p = pmatrix_row(s, length, block, k);
  if (!TIP_LOOKUP || operand >= 0) return matvec_meeting(p, near, far, pendant);
  real_v tip[STATES], sum = 0;
  table_rows(tip_rows(s, length, block, k), codes, tip);
  FOR_STATE(i) tip[i] *= pendant[i];
  matvec_times(p, near, tip);
  FOR_STATE(i) sum += tip[i];
  return sum;
}

// Where the shares of a step's category go, and what both of its sides start from.
#define SCAN_PLACE                                                           \
  int level_in, bool stores, int block, int k, const real_v pendant[STATES], \
      count_v pendant_count, __local real_v *stack, __local real_v *terms, __local count_v *counts
#define SAME_PLACE level_in, stores, block, k, pendant, pendant_count, stack, terms, counts

// One side of a step: N from A and the other side's operand, then what is asked of N. A share goes
// to the batch's place; returns whether there was one.
VECTOR_FUNCTION int scan_side(const plf_t *s, const int side[SIDE_WORDS],
                              const int other[SIDE_WORDS], code_v codes, code_v other_codes,
                              real_v x[STATES], real_v other_x[STATES], count_v x_count,
                              count_v other_count, int batch, SCAN_PLACE) {
  if (side[SIDE_OUTPUT] < 0 && side[SIDE_LEVEL] < 0) return 0;
  real_v near[STATES];
  if (!FETCH_AHEAD) other_count = raw_load(s, other[0], other_codes, block, k, other_x);
  count_v count = other_count + stack_load(s, stack, level_in, k, near);
  raw_times(s, other[0], other_codes, other[SIDE_P], block, k, other_x, near);
  count = rescale(near, count);
  const bool scores = side[SIDE_OUTPUT] >= 0 && !stores;
  if (scores) {
    if (!FETCH_AHEAD) x_count = raw_load(s, side[0], codes, block, k, x);
    terms[TERM_AT(batch, 0, k, COLUMN)] =
        meeting(s, side[0], codes, side[SIDE_HALF_P], block, k, near, x, pendant);
    counts[COUNT_AT(batch, k, COLUMN)] = count + x_count + pendant_count;
  }
  if (side[SIDE_LEVEL] >= 0) {
    real_v above[STATES];
    matvec(pmatrix_row(s, side[SIDE_P], block, k), near, above);
    stack_store(s, stack, side[SIDE_LEVEL], k, above, count);
  }
  if (side[SIDE_OUTPUT] >= 0 && stores) slot_store(s, side[SIDE_OUTPUT], block, k, near, count);
  return scores;
}

// A step in one category. The left side pushes above the level that both start from, so that the
// right one finds it unchanged.
VECTOR_FUNCTION void scan_step(const plf_t *s, const int step[SCAN_STEP_WORDS],
                               const code_v codes[2], int batch, SCAN_PLACE) {
  int left[SIDE_WORDS], right[SIDE_WORDS];
  for (int w = 0; w < SIDE_WORDS; ++w) {
    left[w] = step[LEFT + w];
    right[w] = step[RIGHT + w];
  }
  real_v x[STATES], y[STATES];
#if FETCH_AHEAD
  const count_v x_count = raw_load(s, left[0], codes[0], block, k, x);
  const count_v y_count = raw_load(s, right[0], codes[1], block, k, y);
  batch += scan_side(s, left, right, codes[0], codes[1], x, y, x_count, y_count, batch, SAME_PLACE);
  scan_side(s, right, left, codes[1], codes[0], y, x, y_count, x_count, batch, SAME_PLACE);
#else
  _Pragma("nounroll") for (int turn = 0; turn < 2; ++turn) {
    int side[SIDE_WORDS], other[SIDE_WORDS];
    for (int w = 0; w < SIDE_WORDS; ++w) {
      side[w] = turn ? right[w] : left[w];
      other[w] = turn ? left[w] : right[w];
    }
    batch += scan_side(s, side, other, turn ? codes[1] : codes[0], turn ? codes[0] : codes[1], x, y,
                       0, 0, batch, SAME_PLACE);
  }
#endif
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
  __global const int4 *words = (__global const int4 *)(steps + n * SCAN_STEP_WORDS);
  for (int w = 0; w < SCAN_STEP_WORDS / 4; ++w) vstore4(words[w], w, step);
}

// A task on the n-th block of every chunk of a span. Steps are read ahead, and their tips' codes.
static inline void scan_blocks(const plf_t *s, __global const int *task, bool stores, int span,
                               int n, __local real_v *stack, __local real_v *terms,
                               __local count_v *counts, __local acc_v *lanes, __local int *cells) {
  const int chunk = column_chunk(span, COLUMN), block = chunk_block(s, chunk, n);
  __global const int *steps = s->program + task[SCAN_TASK_FIRST_STEP];
  real_v pendant[MY_CATEGORIES][STATES];
  count_v pendant_count[MY_CATEGORIES];
  FOR_CATEGORY(k) pendant_count[MINE(k)] = set_out(s, task, block, k, stack, pendant[MINE(k)]);
  const int last = task[SCAN_TASK_STEPS] - 1;
  int next[SCAN_STEP_WORDS], batch = 0;
  step_load(steps, 0, next);
  code_v next_codes[2] = {operand_codes(s, next[LEFT], block),
                          operand_codes(s, next[RIGHT], block)};
  for (int at = 0; at <= last; ++at) {
    int step[SCAN_STEP_WORDS];
    for (int word = 0; word < SCAN_STEP_WORDS; ++word) step[word] = next[word];
    const code_v codes[2] = {next_codes[0], next_codes[1]};
    step_load(steps, min(at + 1, last), next);
    FOR_CATEGORY(k)
      scan_step(s, step, codes, batch, step[SCAN_STEP_LEVEL_IN], stores, block, k, pendant[MINE(k)],
                pendant_count[MINE(k)], stack, terms, counts);
    next_codes[0] = operand_codes(s, next[LEFT], block);
    next_codes[1] = operand_codes(s, next[RIGHT], block);
    if (stores) continue;
    const int outputs[2] = {step[LEFT + SIDE_OUTPUT], step[RIGHT + SIDE_OUTPUT]};
    for (int side = 0; side < 2; ++side) {
      if (outputs[side] < 0) continue;
      if (ITEM == 0) cells[batch] = outputs[side];
      ++batch;
    }
    if (batch > BATCH - 2) {
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
