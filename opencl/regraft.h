// The move that changes topologies most: a subtree is pruned, and regrafted elsewhere.
#ifndef REGRAFT_H
#define REGRAFT_H

#include "chain_moves.h"

// Hangs u, which carries a subtree, into the branch above x. For one work-item.
static inline void attach(const chain_t *c, int u, int subtree, int x) {
  hang(c, parent_of(c, x), x, u);
  if (left_of(c, u) == subtree)
    CHAIN_RIGHTS(c)[u] = x;
  else
    CHAIN_LEFTS(c)[u] = x;
  CHAIN_PARENTS(c)[x] = u;
}

// The next node of a preorder behind v; 0 at its end.
static inline int next_down(const chain_t *c, int v) {
  if (v >= c->tips) return left_of(c, v);
  for (;;) {
    const int u = parent_of(c, v);
    if (u == 0) return 0;
    if (v == left_of(c, u)) return right_of(c, u);
    v = u;
  }
}

// An edge that the subtree v goes to, chosen by the heated likelihood with v in its middle. The
// tree without v is the same on the way back, and so is the sum of all weights.
typedef struct {
  int edge;
  acc weight, weight_here;
} target_t;

static inline target_t choose_edge(chain_t *c, int v, int here, stream_t *stream) {
  target_t target = {here, 0, 0};
  acc best = -INFINITY;
  const int middle = c->nodes;
  const side_t pendant = below(c, v);
  for (int x = left_of(c, 0); x != 0; x = next_down(c, x)) {
    if (parent_of(c, x) != 0) make_down(c, x);
    settle_group();
    if (ITEM == 0) FOR_SET(c, n) LENGTHS_OF(c, n)[middle] = LENGTHS_OF(c, n)[x] / 2;
    make_matrices(c, middle, 1);
    side_t lower = below(c, x), upper = above(c, x);
    lower.p = upper.p = matrix_of(c, middle);
    const acc weight = c->heat * at_node(c, lower, upper, pendant).lnl;
    const acc score = weight + gumbel(stream);
    if (x == here) target.weight_here = weight;
    if (score > best) {
      best = score;
      target.edge = x;
      target.weight = weight;
    }
  }
  return target;
}

// Spare lengths of a regraft, and in the place of tip 0 that of the branch above the subtree.
#define NEW_LOWER(c) (c)->nodes
#define NEW_UPPER(c) ((c)->nodes + 1)
#define OLD_LOWER(c) ((c)->nodes + 2)
#define OLD_WHOLE(c) ((c)->nodes + 3)
#define OLD_UPPER 0

// A uniform place of the branch above x in every set; ln of what the ratio has of these lengths and
// the merged ones of w, -INFINITY where a length is not allowed.
static inline acc draw_places(const chain_t *c, int x, int w, stream_t *stream) {
  acc ratio = 0;
  bool allowed = true;
  FOR_SET(c, n) {
    __global acc *lengths = LENGTHS_OF(c, n);
    const acc whole = lengths[x], lower = whole * uniform(stream), upper = whole - lower;
    allowed = allowed && is_allowed(c, lower) && is_allowed(c, upper);
    ratio += log(whole / lengths[w]);
    if (!LEADS(c)) continue;
    lengths[NEW_LOWER(c)] = lower;
    lengths[NEW_UPPER(c)] = upper;
  }
  settle(c);
  return allowed ? ratio : -INFINITY;
}

// Takes u with its subtree v out of the tree, which leaves w below it. For one work-item.
static inline void prune(const chain_t *c, int u, int w) {
  hang(c, parent_of(c, u), u, w);
  FOR_SET(c, n) {
    __global acc *lengths = LENGTHS_OF(c, n);
    lengths[OLD_LOWER(c)] = lengths[w];
    lengths[OLD_UPPER] = lengths[u];
    lengths[w] = lengths[w] + lengths[u];
  }
}

// Puts u into the drawn places of the branch above x, and takes it out of there; for one work-item.
static inline void insert(const chain_t *c, int u, int v, int x) {
  attach(c, u, v, x);
  FOR_SET(c, n) {
    __global acc *lengths = LENGTHS_OF(c, n);
    lengths[OLD_WHOLE(c)] = lengths[x];
    lengths[x] = lengths[NEW_LOWER(c)];
    lengths[u] = lengths[NEW_UPPER(c)];
  }
}

static inline void take_out(const chain_t *c, int u, int x) {
  hang(c, parent_of(c, u), u, x);
  FOR_SET(c, n) LENGTHS_OF(c, n)[x] = LENGTHS_OF(c, n)[OLD_WHOLE(c)];
}

// Puts u back where it was pruned. For one work-item.
static inline void put_back(const chain_t *c, int u, int v, int w) {
  attach(c, u, v, w);
  FOR_SET(c, n) {
    __global acc *lengths = LENGTHS_OF(c, n);
    lengths[w] = lengths[OLD_LOWER(c)];
    lengths[u] = lengths[OLD_UPPER];
  }
}

// CHOOSE: a subtree is pruned and regrafted, at a uniform place of an edge that is chosen among
// all, the one that it leaves included.
static inline void regraft(chain_t *c, int number) {
  stream_t stream = stream_of(c, MOVE_REGRAFT, number);
  const int top = left_of(c, 0), choices = c->nodes - 2;
  int v = 1 + min((int)(uniform(&stream) * choices), choices - 1);
  v += v >= top;
  const int u = parent_of(c, v), w = sibling_of(c, v), g = parent_of(c, u);
  const acc prior = log_priors(c);
  settle(c);
  if (LEADS(c)) prune(c, u, w);
  settle(c);
  make_matrices(c, w, 1);
  renew_up(c, g);
  const target_t target = choose_edge(c, v, w, &stream);
  const int x = target.edge;
  acc lnl = 0, ratio = draw_places(c, x, w, &stream);
  bool taken = ratio > -INFINITY;
  if (taken) {
    make_matrices(c, c->nodes, 2);
    side_t from_below = below(c, x), from_above = above(c, x);
    from_below.p = matrix_of(c, NEW_LOWER(c));
    from_above.p = matrix_of(c, NEW_UPPER(c));
    lnl = at_node(c, from_below, from_above, below(c, v)).lnl;
    ratio += c->heat * (lnl - c->lnl) + target.weight_here - target.weight;
    settle(c);
    if (LEADS(c)) insert(c, u, v, x);
    settle(c);
    taken = is_accepted(&stream, ratio + log_priors(c) - prior);
    settle(c);
    if (LEADS(c) && !taken) take_out(c, u, x);
  }
  if (taken) {
    c->lnl = lnl;
  } else {
    if (LEADS(c)) put_back(c, u, v, w);
    settle(c);
    make_matrices(c, w, 1);
  }
  make_matrices(c, u, 1);
  if (taken) make_matrices(c, x, 1);
  count_move(c, MOVE_REGRAFT, taken && x != w);
  renew_up(c, u);
}

#endif
