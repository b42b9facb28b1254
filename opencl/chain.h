// A chain: a tree that hangs from tip 0, its numbers (CHAIN_...), CLAs and P matrices, and what
// the patterns say of it. A work-group has a chain to itself; all work-items take the same
// decisions from the same sums. CLAs are made and read by the same work-items, so that only the
// numbers, P matrices and sums need a barrier.
#ifndef CHAIN_H
#define CHAIN_H

#define TERMS 3  // L, L', L''

#include "operand.h"
#include "philox.h"
#include "pmatrices.h"
#include "sums.h"

typedef struct {
  const plf_t *s;
  __global const int *record;
  __global acc *words;
  __local real_v *terms;
  __local count_v *counts;
  __local acc_v *lanes;
  int tips, nodes, parts, model, first_block, last_block;
  uint sweep;
  acc lnl, heat;
  acc total;  // tree length
} chain_t;

#define CHAIN_LENGTHS(c) ((c)->words + CHAIN_WORDS)
#define CHAIN_PARENTS(c) (CHAIN_LENGTHS(c) + (c)->nodes + SPARE_LENGTHS)
#define CHAIN_LEFTS(c) (CHAIN_PARENTS(c) + (c)->nodes)
#define CHAIN_RIGHTS(c) (CHAIN_LEFTS(c) + (c)->nodes)
#define CHAIN_SPARES(c) (CHAIN_RIGHTS(c) + (c)->nodes)

// Functions of a chain are calls: each is asked for in many places.
#ifdef __NV_CL_C_VERSION
#define CHAIN_FUNCTION static __attribute__((noinline))
#elif LONE
#define CHAIN_FUNCTION __attribute__((noinline))
#else
#define CHAIN_FUNCTION static
#endif

static inline void settle(void) {
  sync_group(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
}

static inline acc length_of(const chain_t *c, int v) {
  return CHAIN_LENGTHS(c)[v];
}

static inline int parent_of(const chain_t *c, int v) {
  return (int)CHAIN_PARENTS(c)[v];
}

static inline int left_of(const chain_t *c, int v) {
  return (int)CHAIN_LEFTS(c)[v];
}

static inline int right_of(const chain_t *c, int v) {
  return (int)CHAIN_RIGHTS(c)[v];
}

static inline int sibling_of(const chain_t *c, int v) {
  const int u = parent_of(c, v), left = left_of(c, u);
  return left == v ? right_of(c, u) : left;
}

// What is below a node, as an operand, and what is above it.
static inline int up_of(const chain_t *c, int v) {
  return v < c->tips ? ~v : c->record[SWEEP_SLOT] + v - c->tips;
}

static inline int down_of(const chain_t *c, int v) {
  return parent_of(c, v) == 0 ? ~0 : c->record[SWEEP_SLOT] + c->tips - 2 + v;
}

// The P matrices of the branch above a node; behind the nodes those of spare lengths.
static inline int matrix_of(const chain_t *c, int v) {
  return c->record[SWEEP_P] + v * c->parts;
}

static inline void set_length(const chain_t *c, int v, acc length) {
  settle();
  if (ITEM == 0) CHAIN_LENGTHS(c)[v] = length;
  settle();
}

// Puts `after` where `before` hangs from u. For one work-item.
static inline void hang(const chain_t *c, int u, int before, int after) {
  if (left_of(c, u) == before)
    CHAIN_LEFTS(c)[u] = after;
  else
    CHAIN_RIGHTS(c)[u] = after;
  CHAIN_PARENTS(c)[after] = u;
}

static inline stream_t stream_of(const chain_t *c, int move, int number) {
  __global const acc *words = c->words;
  const uint seed = (uint)words[CHAIN_SEED_LOW] | (uint)words[CHAIN_SEED_HIGH] << 16;
  const stream_t stream = {
      {(uint)words[CHAIN_REPLICA], c->sweep, (uint)move * MOVE_STRIDE + number, 0},
      {seed, (uint)words[CHAIN_RUN]}};
  return stream;
}

static inline void count_move(const chain_t *c, int move, bool taken) {
  if (ITEM != 0) return;
  c->words[CHAIN_TRIED + move] += 1;
  if (taken) c->words[CHAIN_TAKEN + move] += 1;
}

// P matrices of the lengths from `first` on.
CHAIN_FUNCTION void make_matrices(const chain_t *c, int first, int count) {
  const int shares = (STATES + MATRIX_ROWS - 1) / MATRIX_ROWS, of_length = shares * CATEGORIES;
  const int jobs = count * c->parts * of_length;
  const int from = c->words + CHAIN_WORDS - LENGTHS_AT(c->s);
  const int first_part = PARTED ? case_of(c->s, c->record[SWEEP_CASE])[CASE_FIRST_PART] : 0;
  settle();
  for (int job = ITEM / MATRIX_ITEMS; job < jobs; job += GROUP_SIZE(ROWS) / MATRIX_ITEMS) {
    const int matrix = job / of_length, share = job % of_length;
    const int v = first + matrix / c->parts, part = first_part + matrix % c->parts;
    pmatrix_fill(c->s, matrix_of(c, v) + part, from + v, c->model + part, share / shares,
                 share % shares * MATRIX_ROWS);
  }
  settle();
}

static inline void change_length(const chain_t *c, int v, acc length) {
  set_length(c, v, length);
  make_matrices(c, v, 1);
}

// cla[dst] = (P[left_p] left) * (P[right_p] right)
CHAIN_FUNCTION void join(const chain_t *c, int dst, int left, int left_p, int right, int right_p) {
  const plf_t *s = c->s;
  for (int block = c->first_block + ROW; block < c->last_block; block += ROWS) {
    const code_v left_codes = operand_codes(s, left, block);
    const code_v right_codes = operand_codes(s, right, block);
    FOR_CATEGORY(k) {
      real_v x[HELD], left_x[HELD], right_x[HELD];
      count_v count = fetch(s, left, left_codes, left_p, block, k, left_x);
      count += fetch(s, right, right_codes, right_p, block, k, right_x);
      cross(s, left, left_p, block, k, left_x, x);
      cross_times(s, right, right_p, block, k, right_x, x);
      count = rescale(x, count);
      slot_store(s, dst, block, k, x, count);
    }
  }
}

static inline void make_up(const chain_t *c, int v) {
  const int left = left_of(c, v), right = right_of(c, v);
  join(c, up_of(c, v), up_of(c, left), matrix_of(c, left), up_of(c, right), matrix_of(c, right));
}

static inline void make_down(const chain_t *c, int v) {
  const int u = parent_of(c, v), other = sibling_of(c, v);
  join(c, down_of(c, v), up_of(c, other), matrix_of(c, other), down_of(c, u), matrix_of(c, u));
}

// Adds a block's lnL, and its derivatives if those are asked for.
VECTOR_FUNCTION void add_block(const chain_t *c, int block, bool slopes, acc_v own[TERMS]) {
  acc_v all[TERMS];
  const count_v count = sum_categories(c->terms, c->counts, ROW, COLUMN, all);
  const acc_v weight = pattern_weights(c->s, c->record[SWEEP_WEIGHTS], block);
  own[0] += weight * scaled_log(all[0], count);
  if (!slopes) return;
  const acc_v inverse = 1 / all[0], slope = all[1] * inverse;
  own[1] += weight * slope;
  own[2] += weight * (all[2] * inverse - slope * slope);
}

typedef struct {
  acc lnl, slope, curve;
} sums_t;

#define TOTAL_LANES (TERMS * ROWS * LANES + (LANES > 1 ? TERMS * REDUCE_WIDTH / WIDTH : 0))

// The sums over all lanes, in one order, for every work-item.
static inline sums_t totals(const chain_t *c, const acc_v own[TERMS]) {
  acc sums[TERMS];
  if (SUMS_UP)
    for (int t = 0; t < TERMS; ++t) c->lanes[(t * ROWS + ROW) * LANES + LANE] = own[t];
#if LANES == 1
  for (int t = 0; t < TERMS; ++t) sums[t] = lanes_sum((__local const acc *)(c->lanes + t));
#else
  __local const acc *each = (__local const acc *)c->lanes;
  __local acc *strided = (__local acc *)(c->lanes + TERMS * ROWS * LANES);
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int q = ITEM; q < TERMS * REDUCE_WIDTH; q += GROUP_SIZE(ROWS)) {
    acc sum = 0;
    for (int n = q % REDUCE_WIDTH; n < ROWS * VW; n += REDUCE_WIDTH)
      sum += each[q / REDUCE_WIDTH * (ROWS * VW) + n];
    strided[q] = sum;
  }
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int t = 0; t < TERMS; ++t) {
    sums[t] = 0;
    for (int v = 0; v < REDUCE_WIDTH; ++v) sums[t] += strided[t * REDUCE_WIDTH + v];
  }
  sync_group(CLK_LOCAL_MEM_FENCE);
#endif
  const sums_t all = {sums[0], sums[1], sums[2]};
  return all;
}

// Rows take blocks side by side, and all go as many rounds: a block is done twice where there is
// none left, and added once.
#define SUM_OF_BLOCKS(c, slopes, share)                                       \
  acc_v own[TERMS] = {0, 0, 0};                                               \
  for (int base = (c)->first_block; base < (c)->last_block; base += ROWS) {   \
    const int block = min(base + (int)ROW, (c)->last_block - 1);              \
    FOR_CATEGORY(k) share;                                                    \
    sync_group(CLK_LOCAL_MEM_FENCE);                                          \
    if (SUMS_UP && base + (int)ROW < (c)->last_block) add_block(c, block, slopes, own); \
    sync_group(CLK_LOCAL_MEM_FENCE);                                          \
  }                                                                           \
  return totals(c, own)

VECTOR_FUNCTION void edge_share(const chain_t *c, int x, int y, int p, int block, int k) {
  const plf_t *s = c->s;
  __global const real *model = model_row(s, c->model, block);
  real_v a[HELD], b[HELD], own[TERMS];
  const count_v count = operand_load(s, x, operand_codes(s, x, block), block, k, a) +
                        operand_load(s, y, operand_codes(s, y, block), block, k, b);
  leave_count(c->counts, ROW, k, COLUMN, count);
#if SITE_SYSTEMS
  edge_sums(s, model, p, block, k, a, b, own);
#else
  if (series_at(s, c->model + part_of(s, block), k) != NO_SERIES)
    edge_sums_exact(s, model, p, block, k, a, b, own);
  else
    edge_sums(s, model, p, block, k, a, b, own);
#endif
  for (int t = 0; t < TERMS; ++t) own[t] *= model[MODEL_WEIGHTS + k];
  leave_terms(c->terms, c->counts, ROW, k, COLUMN, own, count);
}

// lnL and its derivatives in the length of a branch, from both of its ends.
CHAIN_FUNCTION sums_t at_edge(const chain_t *c, int x, int y, int p) {
  SUM_OF_BLOCKS(c, true, edge_share(c, x, y, p, block, k));
}

VECTOR_FUNCTION void node_share(const chain_t *c, const real_v x[HELD], const real_v y[HELD],
                                count_v count, int block, int k) {
  const plf_t *s = c->s;
  __global const real *model = model_row(s, c->model, block);
  real_v sum = 0;
  FOR_STATE(i) sum += FREQUENCY(s, model, block, k, i) * x[i] * y[i];
  const real_v own[TERMS] = {model[MODEL_WEIGHTS + k] * sum, 0, 0};
  leave_count(c->counts, ROW, k, COLUMN, count);
  leave_terms(c->terms, c->counts, ROW, k, COLUMN, own, count);
}

// An operand, and the P matrices of the branch that it is seen across.
typedef struct {
  int x, p;
} side_t;

static inline side_t below(const chain_t *c, int v) {
  const side_t side = {up_of(c, v), matrix_of(c, v)};
  return side;
}

static inline side_t above(const chain_t *c, int v) {
  const side_t side = {down_of(c, v), matrix_of(c, v)};
  return side;
}

VECTOR_FUNCTION count_v side_times(const plf_t *s, side_t side, int block, int k, real_v x[HELD]) {
  real_v y[HELD];
  const count_v count = propagate(s, side.x, side.p, block, k, y);
  FOR_STATE(i) x[i] *= y[i];
  return count;
}

VECTOR_FUNCTION void insertion_share(const chain_t *c, side_t one, side_t other, side_t third,
                                     int block, int k) {
  real_v x[HELD], y[HELD];
  count_v count = propagate(c->s, one.x, one.p, block, k, x);
  count += side_times(c->s, other, block, k, x);
  count += propagate(c->s, third.x, third.p, block, k, y);
  node_share(c, x, y, count, block, k);
}

// lnL where three branches meet.
CHAIN_FUNCTION sums_t at_node(const chain_t *c, side_t one, side_t other, side_t third) {
  SUM_OF_BLOCKS(c, false, insertion_share(c, one, other, third, block, k));
}

VECTOR_FUNCTION void quartet_share(const chain_t *c, side_t a, side_t b, side_t d, side_t e, int p,
                                   int block, int k) {
  real_v x[HELD], y[HELD], z[HELD];
  count_v count = propagate(c->s, a.x, a.p, block, k, x);
  count += side_times(c->s, b, block, k, x);
  count += propagate(c->s, d.x, d.p, block, k, y);
  count += side_times(c->s, e, block, k, y);
  count = rescale(y, count);
  across(c->s, p, block, k, y, z);
  node_share(c, x, z, count, block, k);
}

// lnL of the topology ab|de around an inner branch.
CHAIN_FUNCTION sums_t at_quartet(const chain_t *c, side_t a, side_t b, side_t d, side_t e, int p) {
  SUM_OF_BLOCKS(c, false, quartet_share(c, a, b, d, e, p, block, k));
}

#endif
