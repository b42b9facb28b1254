// What the patterns say of a chain: lnL and its derivatives at a branch, lnL at a node, lnL of the
// topologies around a branch. All work-items of the group get the same sums.
#ifndef CHAIN_LNL_H
#define CHAIN_LNL_H

#define TERMS 3  // L, L', L''

#include "chain.h"
#include "sums.h"

// Asked for: lnL, its derivatives too, or the lnL of two states at once.
enum { ONE_LNL, SLOPES, TWO_LNLS };

// Adds a block's share of what is asked for.
VECTOR_FUNCTION void add_block(const chain_t *c, int block, int asked, acc_v own[TERMS]) {
  acc_v all[TERMS];
  const count_v count = sum_categories(c->terms, c->counts, ROW, COLUMN, all);
  const acc_v weight = pattern_weights(c->s, c->weights, block);
  own[0] += weight * scaled_log(all[0], count);
  if (asked == TWO_LNLS) own[1] += weight * scaled_log(all[1], count);
  if (asked != SLOPES) return;
  const acc_v inverse = 1 / all[0], slope = all[1] * inverse;
  own[1] += weight * slope;
  own[2] += weight * (all[2] * inverse - slope * slope);
}

typedef struct {
  acc lnl, slope, curve;
} sums_t;

// The lnL of the second state, where those of two were asked for.
static inline acc other_lnl(sums_t both) {
  return both.slope;
}

#define TOTAL_LANES (TERMS * ROWS * LANES + (LANES > 1 ? TERMS * REDUCE_WIDTH / WIDTH : 0))

// Adds up the sums of a team's members, in their order. They lie in turn in one of two places, so
// that none is written while it is read.
static inline void team_totals(chain_t *c, acc sums[TERMS]) {
  __global acc *each = TEAM_SUMS(c) + (c->turn & 1) * TERMS * MOST_TEAM;
  ++c->turn;
  if (ITEM == 0)
    for (int t = 0; t < TERMS; ++t) each[c->member * TERMS + t] = sums[t];
  settle(c);
  for (int t = 0; t < TERMS; ++t) {
    sums[t] = 0;
    for (int member = 0; member < c->team; ++member) sums[t] += each[member * TERMS + t];
  }
}

// The sums over all lanes, in one order, for every work-item.
static inline sums_t totals(chain_t *c, const acc_v own[TERMS]) {
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
  if (c->team > 1) team_totals(c, sums);
#endif
  const sums_t all = {sums[0], sums[1], sums[2]};
  return all;
}

// Rows take blocks side by side, and all go as many rounds: a block is done twice where a row has
// none, and added once.
#define SUM_OF_BLOCKS(c, asked, share)                                                 \
  acc_v own[TERMS] = {0, 0, 0};                                                        \
  for (int base = (c)->first_block; base < (c)->last_block; base += (c)->block_step) { \
    const int block = clamp(base + (int)ROW, (c)->start_block, (c)->last_block - 1);   \
    FOR_CATEGORY(k) share;                                                             \
    sync_group(CLK_LOCAL_MEM_FENCE);                                                   \
    if (SUMS_UP && base + (int)ROW == block) add_block(c, block, asked, own);          \
    sync_group(CLK_LOCAL_MEM_FENCE);                                                   \
  }                                                                                    \
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
CHAIN_FUNCTION sums_t at_edge(chain_t *c, int x, int y, int p) {
  SUM_OF_BLOCKS(c, SLOPES, edge_share(c, x, y, p, block, k));
}

// Category k's share of the likelihood where two vectors meet.
VECTOR_FUNCTION real_v meeting(const chain_t *c, const real_v x[HELD], const real_v y[HELD],
                               int block, int k) {
  __global const real *model = model_row(c->s, c->model, block);
  real_v sum = 0;
  FOR_STATE(i) sum += FREQUENCY(c->s, model, block, k, i) * x[i] * y[i];
  return model[MODEL_WEIGHTS + k] * sum;
}

VECTOR_FUNCTION void leave_one(const chain_t *c, int k, real_v share, count_v count) {
  const real_v own[TERMS] = {share, 0, 0};
  leave_count(c->counts, ROW, k, COLUMN, count);
  leave_terms(c->terms, c->counts, ROW, k, COLUMN, own, count);
}

// Leaves such shares of two states on the scale of the smaller count.
VECTOR_FUNCTION void leave_two(const chain_t *c, int k, real_v one, count_v count, real_v other,
                               count_v other_count) {
  const count_v least = count < other_count ? count : other_count;
  if (ANY(count != other_count)) {
    one *= TO_REAL(relative_scale(count, least));
    other *= TO_REAL(relative_scale(other_count, least));
  }
  const real_v own[TERMS] = {one, other, 0};
  leave_count(c->counts, ROW, k, COLUMN, least);
  leave_terms(c->terms, c->counts, ROW, k, COLUMN, own, least);
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
  leave_one(c, k, meeting(c, x, y, block, k), count);
}

// lnL where three branches meet.
CHAIN_FUNCTION sums_t at_node(chain_t *c, side_t one, side_t other, side_t third) {
  SUM_OF_BLOCKS(c, ONE_LNL, insertion_share(c, one, other, third, block, k));
}

// What other rows of weights say of the last state, at the branch above v: lnL of parts, or of
// single patterns.
static inline void probe(chain_t *c, int v, int above_v) {
  __global acc *logs = LENGTHS_AT(c->s) + c->record[SWEEP_LOG];
  for (int n = 0; n < c->record[SWEEP_PROBES]; ++n) {
    c->weights = c->record[SWEEP_PROBE] + n;
    const acc lnl = at_edge(c, up_of(c, v), above_v, matrix_of(c, v)).lnl;
    if (LEADS(c)) logs[n] = lnl;
  }
}

// All P matrices and all that is below nodes; lnL. Each kind of tree has its own.
CHAIN_FUNCTION acc whole_lnl(chain_t *c);

// ACCEPT: whether a state of this ln ratio takes the place of the present one.
static inline bool is_accepted(stream_t *stream, acc log_ratio) {
  return log(uniform(stream)) < log_ratio;
}

// A proposed model is decided on; afterwards all CLAs are those of the chain's model.
CHAIN_FUNCTION void decide_model(chain_t *c) {
  __global acc *words = c->words;
  const acc before = words[CHAIN_LNL];
  const bool is_proposed = words[CHAIN_PROPOSAL] == 1;
  const int model = c->model;
  settle(c);
  if (is_proposed) {
    c->model += c->parts;
    c->lnl = whole_lnl(c);
    stream_t stream = stream_of(c, MOVE_MODEL, (int)words[CHAIN_ATTEMPT]);
    if (is_accepted(&stream, c->heat * (c->lnl - before) + words[CHAIN_RATIO])) {
      if (LEADS(c)) words[CHAIN_PROPOSAL] = 2;
      return;
    }
    c->model = model;
  }
  c->lnl = whole_lnl(c);
}

#endif
