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
    change_length(c, middle, length_of(c, x) / 2);
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

// CHOOSE: a subtree is pruned and regrafted, at a uniform place of an edge that is chosen among
// all, the one that it leaves included.
static inline void regraft(chain_t *c, int number) {
  stream_t stream = stream_of(c, MOVE_REGRAFT, number);
  const int top = left_of(c, 0), choices = c->nodes - 2;
  int v = 1 + min((int)(uniform(&stream) * choices), choices - 1);
  v += v >= top;
  const int u = parent_of(c, v), w = sibling_of(c, v), g = parent_of(c, u);
  const acc below_u = length_of(c, w), above_u = length_of(c, u), merged = below_u + above_u;
  const acc prior = log_prior(c);
  settle(c);
  if (LEADS(c)) hang(c, g, u, w);
  settle(c);
  change_length(c, w, merged);
  renew_up(c, g);
  const target_t target = choose_edge(c, v, w, &stream);
  const int x = target.edge;
  const acc whole = length_of(c, x), lower = whole * uniform(&stream), upper = whole - lower;
  acc lnl = 0, ratio = 0;
  bool taken = is_allowed(c, lower) && is_allowed(c, upper);
  if (taken) {
    change_spares(c, 2, lower, upper, 0);
    side_t from_below = below(c, x), from_above = above(c, x);
    from_below.p = matrix_of(c, c->nodes);
    from_above.p = matrix_of(c, c->nodes + 1);
    lnl = at_node(c, from_below, from_above, below(c, v)).lnl;
    ratio = c->heat * (lnl - c->lnl) + target.weight_here - target.weight + log(whole / merged);
    settle(c);
    if (LEADS(c)) {
      attach(c, u, v, x);
      CHAIN_LENGTHS(c)[x] = lower;
      CHAIN_LENGTHS(c)[u] = upper;
    }
    settle(c);
    taken = is_accepted(&stream, ratio + log_prior(c) - prior);
    if (!taken) {
      settle(c);
      if (LEADS(c)) {
        hang(c, parent_of(c, u), u, x);
        CHAIN_LENGTHS(c)[x] = whole;
      }
      settle(c);
    }
  }
  if (taken) {
    c->lnl = lnl;
  } else {
    settle(c);
    if (LEADS(c)) {
      attach(c, u, v, w);
      CHAIN_LENGTHS(c)[w] = below_u;
      CHAIN_LENGTHS(c)[u] = above_u;
    }
    settle(c);
    make_matrices(c, w, 1);
  }
  make_matrices(c, u, 1);
  if (taken) make_matrices(c, x, 1);
  count_move(c, MOVE_REGRAFT, taken && x != w);
  renew_up(c, u);
}

#endif
