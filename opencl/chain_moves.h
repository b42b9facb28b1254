// The moves of a chain, each with its ratio; mltree/program/ops/sweeps.py has them in NumPy.
#ifndef CHAIN_MOVES_H
#define CHAIN_MOVES_H

#include "chain_lnl.h"

// The next node of a postorder below the top, of node v's; 0 behind the top.
static inline int leftmost(const chain_t *c, int v) {
  while (v >= c->tips) v = left_of(c, v);
  return v;
}

static inline int after(const chain_t *c, int v) {
  const int u = parent_of(c, v);
  return u != 0 && v == left_of(c, u) ? leftmost(c, right_of(c, u)) : u;
}

// lnL across the branch of tip 0.
CHAIN_FUNCTION acc whole_lnl(chain_t *c) {
  make_matrices(c, 1, c->nodes - 1);
  const int top = left_of(c, 0);
  for (int v = leftmost(c, top); v != 0; v = after(c, v))
    if (v >= c->tips) make_up(c, v);
  return at_edge(c, up_of(c, top), ~0, matrix_of(c, top)).lnl;
}

// What is below the nodes from v up to the top, once something there has changed.
CHAIN_FUNCTION void renew_up(const chain_t *c, int v) {
  for (; v != 0; v = parent_of(c, v)) make_up(c, v);
}

// k - 1 of a branch's prior.
static inline acc shape_of(const chain_t *c, int v) {
  return c->words[v < c->tips || parent_of(c, v) == 0 ? CHAIN_OUTER : CHAIN_INNER];
}

static inline acc tree_length(const chain_t *c) {
  acc total = 0;
  for (int v = 1; v < c->nodes; ++v) total += length_of(c, v);
  return total;
}

// The tree length of each set, where the length above tip 0 would lie.
static inline void total_up(chain_t *c) {
  settle(c);
  FOR_SET(c, n) {
    take_set(c, n);
    const acc total = tree_length(c);
    if (LEADS(c)) CHAIN_LENGTHS(c)[0] = total;
  }
  take_all(c);
  settle(c);
}

// ln of the prior of the lengths at hand, without its constant.
CHAIN_FUNCTION acc log_prior(const chain_t *c) {
  __global const acc *words = c->words;
  const acc total = tree_length(c);
  acc sum = words[CHAIN_POWER] * log(total) - words[CHAIN_RATE] * total;
  if (words[CHAIN_OUTER] != 0 || words[CHAIN_INNER] != 0)
    for (int v = 1; v < c->nodes; ++v) sum += shape_of(c, v) * log(length_of(c, v));
  return sum;
}

static inline bool is_allowed(const chain_t *c, acc length) {
  return length >= c->s->min_length && length <= c->s->max_length;
}

// The same of all sets.
static inline acc log_priors(chain_t *c) {
  acc sum = 0;
  FOR_SET(c, n) {
    c->set = n;
    sum += log_prior(c);
  }
  c->set = 0;
  return sum;
}

// Scales the lengths at hand: with E lengths the Hastings ratio is factor^E.
static inline void scale_set(chain_t *c) {
  stream_t stream = stream_of(c, MOVE_SCALE, c->set);
  const acc step = c->words[CHAIN_WINDOW] * (uniform(&stream) - (acc)0.5), factor = exp(step);
  const acc before = log_prior(c);
  bool allowed = true;
  for (int v = 1; v < c->nodes; ++v) allowed &= is_allowed(c, factor * length_of(c, v));
  settle(c);
  if (!allowed) {
    count_move(c, MOVE_SCALE, false);
    return;
  }
  acc here = c->lnl;
  if (SETS(c) > 1) {
    const int top = left_of(c, 0);
    here = at_edge(c, up_of(c, top), ~0, matrix_of(c, top)).lnl;
  }
  for (int v = 1 + ITEM; v < c->nodes && c->member == 0; v += GROUP_SIZE(ROWS)) {
    CHAIN_SPARES(c)[v] = length_of(c, v);
    CHAIN_LENGTHS(c)[v] = factor * length_of(c, v);
  }
  settle(c);
  const acc lnl = whole_lnl(c);
  const acc ratio = c->heat * (lnl - here) + log_prior(c) - before + (c->nodes - 1) * step;
  const bool taken = is_accepted(&stream, ratio);
  count_move(c, MOVE_SCALE, taken);
  if (taken) {
    c->lnl = SETS(c) > 1 ? c->lnl + (lnl - here) : lnl;
  } else {
    settle(c);
    for (int v = 1 + ITEM; v < c->nodes && c->member == 0; v += GROUP_SIZE(ROWS))
      CHAIN_LENGTHS(c)[v] = CHAIN_SPARES(c)[v];
    settle(c);
    whole_lnl(c);
  }
}

static inline void scale(chain_t *c) {
  FOR_SET(c, n) {
    take_set(c, n);
    scale_set(c);
  }
  take_all(c);
}

// A Gamma distribution that a length is drawn from.
typedef struct {
  acc shape, rate;
} gamma_t;

static inline acc gamma_log_density(const gamma_t *of, acc x) {
  return of->shape * log(of->rate) - lgamma(of->shape) + (of->shape - 1) * log(x) - of->rate * x;
}

// That which has the first two derivatives of the heated posterior at length t, where there is one.
static inline gamma_t fitted(const chain_t *c, int v, acc t, acc total, sums_t at) {
  __global const acc *words = c->words;
  const acc k = shape_of(c, v), power = words[CHAIN_POWER];
  const acc slope = c->heat * at.slope + k / t + power / total - words[CHAIN_RATE];
  const acc curve = c->heat * at.curve - k / (t * t) - power / (total * total);
  const acc count = fmax(-curve * t * t, (acc)0);
  const acc rate = count / t - slope, least = (count + 1) / (MOST_MEAN * t + 1);
  const gamma_t of = {count + 1, rate > least ? rate : least};
  return of;
}

// Writes a length and the tree length for the group, and P matrices: see change_length.
static inline void change_branch(const chain_t *c, int v, acc length, acc total) {
  settle_group();
  if (ITEM == 0) {
    CHAIN_LENGTHS(c)[v] = length;
    CHAIN_LENGTHS(c)[0] = total;
  }
  make_matrices(c, v, 1);
}

// DRAW: a new length of the branch above v, from what is seen at its ends.
static inline void draw_length(chain_t *c, int v, int number) {
  stream_t stream = stream_of(c, MOVE_BRANCH, number);
  __global const acc *words = c->words;
  const int x = up_of(c, v), y = down_of(c, v), p = matrix_of(c, v);
  const acc t = length_of(c, v), before = length_of(c, 0);
  const sums_t here = at_edge(c, x, y, p);
  const gamma_t forth = fitted(c, v, t, before, here);
  const acc drawn = gamma_draw(&stream, forth.shape) / forth.rate;
  bool taken = false;
  c->lnl = here.lnl;
  if (is_allowed(c, drawn)) {
    const acc total = before - t + drawn;
    change_branch(c, v, drawn, total);
    const sums_t there = at_edge(c, x, y, p);
    const gamma_t back = fitted(c, v, drawn, total, there);
    const acc prior = shape_of(c, v) * log(drawn / t) + words[CHAIN_POWER] * log(total / before) -
                      words[CHAIN_RATE] * (drawn - t);
    const acc hastings = gamma_log_density(&back, t) - gamma_log_density(&forth, drawn);
    taken = is_accepted(&stream, c->heat * (there.lnl - here.lnl) + prior + hastings);
    if (taken)
      c->lnl = there.lnl;
    else
      change_branch(c, v, t, before);
  }
  count_move(c, MOVE_BRANCH, taken);
}

// The same in every set: given the tree, parts do not depend on each other.
static inline void draw_lengths(chain_t *c, int v, int number) {
  acc lnl = 0;
  FOR_SET(c, n) {
    take_set(c, n);
    draw_length(c, v, number + n * 2 * (c->nodes - 1));
    lnl += c->lnl;
  }
  take_all(c);
  c->lnl = lnl;
}

// Of the topologies ad|be and db|ae: sides are seen across their branches once for both.
VECTOR_FUNCTION void quartets_share(const chain_t *c, side_t a, side_t b, side_t d, side_t e, int p,
                                    int block, int k) {
  const plf_t *s = c->s;
  real_v of_a[HELD], of_b[HELD], one[HELD], other[HELD];
  const count_v a_count = propagate(s, a.x, a.p, block, k, of_a);
  const count_v b_count = propagate(s, b.x, b.p, block, k, of_b);
  const count_v d_count = propagate(s, d.x, d.p, block, k, one);
  FOR_STATE(i) {
    other[i] = one[i] * of_b[i];
    one[i] *= of_a[i];
  }
  real_v seen[HELD];
  const count_v e_count = propagate(s, e.x, e.p, block, k, seen);
  FOR_STATE(i) {
    of_b[i] *= seen[i];
    of_a[i] *= seen[i];
  }
  const count_v count = a_count + d_count + rescale(of_b, b_count + e_count);
  const count_v other_count = d_count + b_count + rescale(of_a, a_count + e_count);
  across(s, p, block, k, of_b, seen);
  const real_v first = meeting(c, one, seen, block, k);
  across(s, p, block, k, of_a, seen);
  leave_two(c, k, first, count, meeting(c, other, seen, block, k), other_count);
}

// lnL of both other topologies around an inner branch that has ab|de.
CHAIN_FUNCTION sums_t at_quartets(chain_t *c, side_t a, side_t b, side_t d, side_t e, int p) {
  SUM_OF_BLOCKS(c, TWO_LNLS, quartets_share(c, a, b, d, e, p, block, k));
}

// CHOOSE: one of the three topologies around the branch above v, by their heated likelihoods with
// all lengths kept. The largest of weights with Gumbel numbers is chosen as often as its weight is.
static inline void interchange(chain_t *c, int v, int number) {
  const int u = parent_of(c, v), left = left_of(c, v), right = right_of(c, v);
  const int other = sibling_of(c, v), p = matrix_of(c, v);
  const side_t a = below(c, left), b = below(c, right), d = below(c, other), e = above(c, u);
  stream_t stream = stream_of(c, MOVE_INTERCHANGE, number);
  const acc stays = c->heat * c->lnl + gumbel(&stream);
  const sums_t both = at_quartets(c, a, b, d, e, p);
  const acc with_right = both.lnl, with_left = other_lnl(both);
  const acc right_moves = c->heat * with_right + gumbel(&stream);
  const acc left_moves = c->heat * with_left + gumbel(&stream);
  const bool taken = right_moves > stays || left_moves > stays;
  count_move(c, MOVE_INTERCHANGE, taken);
  if (!taken) return;
  const bool is_right = right_moves > left_moves || !(left_moves > stays);
  settle(c);
  if (LEADS(c)) {
    const int moved = is_right ? right : left;
    hang(c, u, other, moved);
    if (is_right)
      CHAIN_RIGHTS(c)[v] = other;
    else
      CHAIN_LEFTS(c)[v] = other;
    CHAIN_PARENTS(c)[other] = v;
  }
  settle(c);
  c->lnl = is_right ? with_right : with_left;
  make_up(c, v);
  make_down(c, v);
}

#endif
