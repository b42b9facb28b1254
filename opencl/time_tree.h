// A tree with a time axis: heights of nodes, rates of the branches above them, a clock. A branch of
// duration d has the length clock * rate * d; the rate of the root, which has no branch, is drawn
// from its prior like the others.
#ifndef TIME_TREE_H
#define TIME_TREE_H

#include "chain_lnl.h"

#define TIME(c) (TEAM_SUMS(c) + TEAM_WORDS)
#define HEIGHTS(c) (TIME(c) + TIME_WORDS)
#define RATES(c) (HEIGHTS(c) + (c)->nodes)
#define EARLIEST(c) (RATES(c) + (c)->nodes)
#define LATEST(c) (EARLIEST(c) + (c)->nodes)
#define WARPED(c) (LATEST(c) + (c)->nodes)
#define BEFORE(c) (WARPED(c) + (c)->nodes)
#define CELLS(c) (BEFORE(c) + (c)->nodes)
#define CALIBRATIONS(c) (CELLS(c) + 3 * cells_of(c))
#define SPARE(c, n) ((c)->nodes + (n))  // the n-th of the lengths for proposals

static inline int cells_of(const chain_t *c) {
  return (int)TIME(c)[TIME_CELLS];
}

static inline int root_of(const chain_t *c) {
  return (int)TIME(c)[TIME_ROOT];
}

static inline acc height_of(const chain_t *c, int v) {
  return HEIGHTS(c)[v];
}

static inline acc rate_of(const chain_t *c, int v) {
  return RATES(c)[v];
}

static inline __global acc *scalar_of(const chain_t *c, int which) {
  return TIME(c) + TIME_SCALARS + SCALAR_WORDS * which;
}

static inline acc clock_of(const chain_t *c) {
  return *scalar_of(c, SCALAR_CLOCK);
}

static inline acc window_of(const chain_t *c, int move) {
  return TIME(c)[TIME_WINDOWS + move];
}

static inline stream_t time_stream(const chain_t *c, int move, int number) {
  return stream_of(c, FIRST_TIME_MOVE + move, number);
}

static inline void count_time_move(const chain_t *c, int move, bool taken) {
  if (!LEADS(c)) return;
  TIME(c)[TIME_TRIED + move] += 1;
  if (taken) TIME(c)[TIME_TAKEN + move] += 1;
}

// Writes a number for the whole team.
static inline void put(const chain_t *c, __global acc *place, acc value) {
  settle(c);
  if (LEADS(c)) *place = value;
  settle(c);
}

// Changes the first two or three spare lengths, whose matrices are made side by side.
CHAIN_FUNCTION void change_spares(const chain_t *c, int count, acc first, acc second, acc third) {
  settle_group();
  if (ITEM == 0) {
    CHAIN_LENGTHS(c)[c->nodes] = first;
    CHAIN_LENGTHS(c)[c->nodes + 1] = second;
    if (count > 2) CHAIN_LENGTHS(c)[c->nodes + 2] = third;
  }
  make_matrices(c, c->nodes, count);
}

static inline acc older_child(const chain_t *c, int v) {
  return fmax(height_of(c, left_of(c, v)), height_of(c, right_of(c, v)));
}

static inline bool is_in_order(const chain_t *c) {
  bool is = true;
  for (int v = c->tips; v < c->nodes; ++v) is &= height_of(c, v) > older_child(c, v);
  return is;
}

static inline acc bounded(const chain_t *c, acc length) {
  return fmin(fmax(length, (acc)c->s->min_length), (acc)c->s->max_length);
}

// Length of the branch above v if it reached from one height to another.
static inline acc reach(const chain_t *c, int v, acc from, acc to) {
  return clock_of(c) * rate_of(c, v) * (to - from);
}

// Length of the branch above v by heights; of a child of the root, both children's together.
static inline acc length_by_heights(const chain_t *c, int v) {
  const int u = parent_of(c, v);
  acc length = reach(c, v, height_of(c, v), height_of(c, u));
  if (parent_of(c, u) < 0) {
    const int w = sibling_of(c, v);
    length += reach(c, w, height_of(c, w), height_of(c, u));
  }
  return bounded(c, length);
}

CHAIN_FUNCTION void renew_length(const chain_t *c, int v) {
  if (v != root_of(c)) change_length(c, v, length_by_heights(c, v));
}

CHAIN_FUNCTION void renew_children(const chain_t *c, int v) {
  if (v < c->tips) return;
  renew_length(c, left_of(c, v));
  renew_length(c, right_of(c, v));
}

// The next node of a postorder; the root is the last.
static inline int leftmost_tip(const chain_t *c, int v) {
  while (v >= c->tips) v = left_of(c, v);
  return v;
}

static inline int next_up(const chain_t *c, int v) {
  const int u = parent_of(c, v);
  return v == left_of(c, u) ? leftmost_tip(c, right_of(c, u)) : u;
}

// The next node of a preorder; below nodes that are not above a height there is nothing to see.
static inline int next_above(const chain_t *c, int x, acc height) {
  if (x >= c->tips && height_of(c, x) > height) return left_of(c, x);
  for (;;) {
    const int u = parent_of(c, x);
    if (u < 0) return -1;
    if (x == left_of(c, u)) return right_of(c, u);
    x = u;
  }
}

CHAIN_FUNCTION void write_lengths(const chain_t *c) {
  const int root = root_of(c);
  settle(c);
  for (int v = ITEM; v < c->nodes && c->member == 0; v += GROUP_SIZE(ROWS))
    CHAIN_LENGTHS(c)[v] = v == root ? (acc)0.1 : length_by_heights(c, v);
  settle(c);
}

CHAIN_FUNCTION acc whole_lnl(chain_t *c) {
  const int root = root_of(c), left = left_of(c, root), right = right_of(c, root);
  write_lengths(c);
  make_matrices(c, 0, c->nodes);
  for (int v = leftmost_tip(c, root); v != root; v = next_up(c, v))
    if (v >= c->tips) make_up(c, v);
  return at_edge(c, up_of(c, left), up_of(c, right), matrix_of(c, left)).lnl;
}

// lnL once all branches have changed; what was below nodes before stays on the other side.
static inline acc tried_lnl(chain_t *c) {
  c->side = !c->side;
  return whole_lnl(c);
}

static inline void turn_back(chain_t *c) {
  c->side = !c->side;
  write_lengths(c);
}

// What is below the nodes from v up to the root, which itself has none.
CHAIN_FUNCTION void renew_up(const chain_t *c, int v) {
  for (const int root = root_of(c); v >= 0 && v != root; v = parent_of(c, v)) make_up(c, v);
}

// `term` of i = 0 .. count - 1 added up by all work-items, in one order.
#if LANES == 1
#define SUM_OVER(c, sum, i, count, term) \
  acc sum = 0;                           \
  for (int i = 0; i < (count); ++i) sum += (term);
#else
#define SUM_OVER(c, sum, i, count, term)                                       \
  acc sum = 0;                                                                 \
  {                                                                            \
    __local acc *strided = (__local acc *)((c)->lanes + TERMS * ROWS * LANES); \
    sync_group(CLK_LOCAL_MEM_FENCE);                                           \
    for (int q = ITEM; q < REDUCE_WIDTH; q += GROUP_SIZE(ROWS)) {              \
      acc share = 0;                                                           \
      for (int i = q; i < (count); i += REDUCE_WIDTH) share += (term);         \
      strided[q] = share;                                                      \
    }                                                                          \
    sync_group(CLK_LOCAL_MEM_FENCE);                                           \
    for (int q = 0; q < REDUCE_WIDTH; ++q) sum += strided[q];                  \
    sync_group(CLK_LOCAL_MEM_FENCE);                                           \
  }
#endif

#endif
