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

// The branches above both children of a node, in whose middles a pruned subtree is tried.
typedef struct {
  side_t upper, left, right;
  int above_left, above_right;  // slots for what is above them
  int half_left, half_right;    // P matrices of half their branches
  int pendant;                  // slot of the subtree, as it is seen across its own branch
} children_t;

// Category k's share of the likelihood with the subtree in the middle of a branch.
VECTOR_FUNCTION real_v in_middle(const chain_t *c, int below, const real_v above[HELD], int p,
                                 int pendant, int block, int k, count_v *count) {
  real_v x[HELD], y[HELD];
  across(c->s, p, block, k, above, x);
  const side_t lower = {below, p};
  *count += side_times(c->s, lower, block, k, x);
  *count += operand_load(c->s, pendant, (code_v)(0), block, k, y);
  return meeting(c, x, y, block, k);
}

VECTOR_FUNCTION void children_share(const chain_t *c, const children_t *of, bool keeps, int block,
                                    int k) {
  const plf_t *s = c->s;
  real_v above_left[HELD], above_right[HELD], seen[HELD];
  const count_v left = propagate(s, of->left.x, of->left.p, block, k, above_right);
  const count_v right = propagate(s, of->right.x, of->right.p, block, k, above_left);
  const count_v upper = propagate(s, of->upper.x, of->upper.p, block, k, seen);
  FOR_STATE(i) {
    above_left[i] *= seen[i];
    above_right[i] *= seen[i];
  }
  count_v count = rescale(above_left, right + upper);
  count_v other_count = rescale(above_right, left + upper);
  if (keeps) {
    slot_store(s, of->above_left, block, k, above_left, count);
    slot_store(s, of->above_right, block, k, above_right, other_count);
  }
  const real_v one =
      in_middle(c, of->left.x, above_left, of->half_left, of->pendant, block, k, &count);
  const real_v other =
      in_middle(c, of->right.x, above_right, of->half_right, of->pendant, block, k, &other_count);
  leave_two(c, k, one, count, other, other_count);
}

// Makes what is above both children of u; lnL with the subtree above the left one and the right.
// A row without a block of its own keeps nothing: what it reads may not have been made yet.
CHAIN_FUNCTION sums_t at_children(chain_t *c, int u, int pendant) {
  const int left = left_of(c, u), right = right_of(c, u);
  const children_t of = {above(c, u),
                         below(c, left),
                         below(c, right),
                         down_of(c, left),
                         down_of(c, right),
                         matrix_of(c, c->nodes),
                         matrix_of(c, c->nodes + 1),
                         pendant};
  SUM_OF_BLOCKS(c, TWO_LNLS, children_share(c, &of, block == base + (int)ROW, block, k));
}

// cla[dst] = P[side.p] side
CHAIN_FUNCTION void carry(const chain_t *c, int dst, side_t side) {
  for (int block = c->first_block + ROW; block < c->last_block; block += c->block_step) {
    if (block < c->start_block) continue;
    FOR_CATEGORY(k) {
      real_v x[HELD];
      const count_v count = propagate(c->s, side.x, side.p, block, k, x);
      slot_store(c->s, dst, block, k, x, count);
    }
  }
}

// Halves of the branches above two nodes, with their P matrices.
static inline void make_halves(const chain_t *c, int one, int other) {
  settle_group();
  if (ITEM == 0) FOR_SET(c, n) {
      __global acc *lengths = LENGTHS_OF(c, n);
      lengths[c->nodes] = lengths[one] / 2;
      lengths[c->nodes + 1] = lengths[other] / 2;
    }
  make_matrices(c, c->nodes, 2);
}

// An edge that the subtree v goes to, chosen by the heated likelihood with v in its middle. The
// tree without v is the same on the way back, and so is the sum of all weights.
typedef struct {
  int edge, here;
  acc weight, weight_here, best;
} target_t;

static inline void consider(const chain_t *c, target_t *target, int x, acc lnl, stream_t *stream) {
  const acc weight = c->heat * lnl, score = weight + gumbel(stream);
  if (x == target->here) target->weight_here = weight;
  if (!(score > target->best)) return;
  target->best = score;
  target->edge = x;
  target->weight = weight;
}

// The place of what is below v's parent, which is out of the tree, holds v meanwhile.
static inline target_t choose_edge(chain_t *c, int v, int here, stream_t *stream) {
  target_t target = {here, here, 0, 0, -INFINITY};
  const int top = left_of(c, 0), pendant = up_of(c, parent_of(c, v));
  carry(c, pendant, below(c, v));
  make_halves(c, top, top);
  side_t lower = below(c, top), upper = above(c, top);
  lower.p = upper.p = matrix_of(c, c->nodes);
  consider(c, &target, top, at_node(c, lower, upper, below(c, v)).lnl, stream);
  for (int u = top; u != 0; u = next_down(c, u)) {
    if (u < c->tips) continue;
    const int left = left_of(c, u), right = right_of(c, u);
    make_halves(c, left, right);
    const sums_t both = at_children(c, u, pendant);
    consider(c, &target, left, both.lnl, stream);
    consider(c, &target, right, other_lnl(both), stream);
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
