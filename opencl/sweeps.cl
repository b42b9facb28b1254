// Sweeps of chains: Markov chain Monte Carlo over trees and branch lengths, a work-group a chain.
// A sweep scales all lengths, regrafts subtrees, and tours the tree, where it chooses among the
// interchanges around every inner branch and draws every length. mltree/program/ops/sweeps.py has
// the same in NumPy, and the ratio of each move.
#include "chain.h"
#include "grid.h"

#define OWN_OP OP_SWEEPS
#define WORKER_ROWS ROWS
#define LOCAL_TERMS (TERMS * ROWS * SHARES * LANES)
#define LOCAL_LANES TOTAL_LANES
#define LOCAL_CELLS 1

// The next node of a postorder below the top, of node v's; 0 behind the top.
static inline int leftmost(const chain_t *c, int v) {
  while (v >= c->tips) v = left_of(c, v);
  return v;
}

static inline int after(const chain_t *c, int v) {
  const int u = parent_of(c, v);
  return u != 0 && v == left_of(c, u) ? leftmost(c, right_of(c, u)) : u;
}

// All P matrices and all that is below nodes; lnL across the branch of tip 0.
static inline acc whole_lnl(const chain_t *c) {
  make_matrices(c, 1, c->nodes - 1);
  const int top = left_of(c, 0);
  for (int v = leftmost(c, top); v != 0; v = after(c, v))
    if (v >= c->tips) make_up(c, v);
  return at_edge(c, up_of(c, top), ~0, matrix_of(c, top)).lnl;
}

// What is below the nodes from v up to the top, once something there has changed.
static inline void renew_up(const chain_t *c, int v) {
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

// ln of the prior of all lengths, without its constant.
static inline acc log_prior(const chain_t *c) {
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

// ACCEPT: whether a state of this ln ratio takes the place of the present one.
static inline bool is_accepted(stream_t *stream, acc log_ratio) {
  return log(uniform(stream)) < log_ratio;
}

// A proposed model is decided on; afterwards all CLAs are those of the chain's model.
static inline void decide_model(chain_t *c, int proposed) {
  __global acc *words = c->words;
  const acc before = words[CHAIN_LNL];
  const bool is_proposed = words[CHAIN_PROPOSAL] == 1;
  const int model = c->model;
  settle();
  if (is_proposed) {
    c->model = proposed;
    c->lnl = whole_lnl(c);
    stream_t stream = stream_of(c, MOVE_MODEL, (int)words[CHAIN_ATTEMPT]);
    if (is_accepted(&stream, c->heat * (c->lnl - before) + words[CHAIN_RATIO])) {
      if (ITEM == 0) words[CHAIN_PROPOSAL] = 2;
      return;
    }
    c->model = model;
  }
  c->lnl = whole_lnl(c);
}

// Scales all lengths: with E lengths the Hastings ratio is factor^E.
static inline void scale(chain_t *c) {
  stream_t stream = stream_of(c, MOVE_SCALE, 0);
  const acc step = c->words[CHAIN_WINDOW] * (uniform(&stream) - (acc)0.5), factor = exp(step);
  const acc before = log_prior(c);
  bool allowed = true;
  for (int v = 1; v < c->nodes; ++v) allowed &= is_allowed(c, factor * length_of(c, v));
  settle();
  if (!allowed) {
    count_move(c, MOVE_SCALE, false);
    return;
  }
  for (int v = 1 + ITEM; v < c->nodes; v += GROUP_SIZE(ROWS)) {
    CHAIN_SPARES(c)[v] = length_of(c, v);
    CHAIN_LENGTHS(c)[v] = factor * length_of(c, v);
  }
  settle();
  const acc lnl = whole_lnl(c);
  const acc ratio =
      c->heat * (lnl - c->lnl) + log_prior(c) - before + (c->nodes - 1) * step;
  const bool taken = is_accepted(&stream, ratio);
  count_move(c, MOVE_SCALE, taken);
  if (taken) {
    c->lnl = lnl;
  } else {
    settle();
    for (int v = 1 + ITEM; v < c->nodes; v += GROUP_SIZE(ROWS))
      CHAIN_LENGTHS(c)[v] = CHAIN_SPARES(c)[v];
    settle();
    whole_lnl(c);
  }
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

// DRAW: a new length of the branch above v, from what is seen at its ends.
static inline void draw_length(chain_t *c, int v, int number) {
  stream_t stream = stream_of(c, MOVE_BRANCH, number);
  __global const acc *words = c->words;
  const int x = up_of(c, v), y = down_of(c, v), p = matrix_of(c, v);
  const acc t = length_of(c, v);
  const sums_t here = at_edge(c, x, y, p);
  const gamma_t forth = fitted(c, v, t, c->total, here);
  const acc drawn = gamma_draw(&stream, forth.shape) / forth.rate;
  bool taken = false;
  c->lnl = here.lnl;
  if (is_allowed(c, drawn)) {
    const acc total = c->total - t + drawn;
    change_length(c, v, drawn);
    const sums_t there = at_edge(c, x, y, p);
    const gamma_t back = fitted(c, v, drawn, total, there);
    const acc prior = shape_of(c, v) * log(drawn / t) +
                      words[CHAIN_POWER] * log(total / c->total) - words[CHAIN_RATE] * (drawn - t);
    const acc hastings = gamma_log_density(&back, t) - gamma_log_density(&forth, drawn);
    taken = is_accepted(&stream, c->heat * (there.lnl - here.lnl) + prior + hastings);
    if (taken) {
      c->lnl = there.lnl;
      c->total = total;
    } else {
      change_length(c, v, t);
    }
  }
  count_move(c, MOVE_BRANCH, taken);
}

// CHOOSE: one of the three topologies around the branch above v, by their heated likelihoods with
// all lengths kept. The largest of weights with Gumbel numbers is chosen as often as its weight is.
static inline void interchange(chain_t *c, int v, int number) {
  const int u = parent_of(c, v), left = left_of(c, v), right = right_of(c, v);
  const int other = sibling_of(c, v), p = matrix_of(c, v);
  const side_t a = below(c, left), b = below(c, right), d = below(c, other), e = above(c, u);
  stream_t stream = stream_of(c, MOVE_INTERCHANGE, number);
  const acc stays = c->heat * c->lnl + gumbel(&stream);
  const acc with_right = at_quartet(c, a, d, b, e, p).lnl;
  const acc right_moves = c->heat * with_right + gumbel(&stream);
  const acc with_left = at_quartet(c, d, b, a, e, p).lnl;
  const acc left_moves = c->heat * with_left + gumbel(&stream);
  const bool taken = right_moves > stays || left_moves > stays;
  count_move(c, MOVE_INTERCHANGE, taken);
  if (!taken) return;
  const bool is_right = right_moves > left_moves || !(left_moves > stays);
  settle();
  if (ITEM == 0) {
    const int moved = is_right ? right : left;
    hang(c, u, other, moved);
    if (is_right)
      CHAIN_RIGHTS(c)[v] = other;
    else
      CHAIN_LEFTS(c)[v] = other;
    CHAIN_PARENTS(c)[other] = v;
  }
  settle();
  c->lnl = is_right ? with_right : with_left;
  make_up(c, v);
  make_down(c, v);
}

// Everything above node v, from the top down: the way there is kept among the spare numbers.
static inline void look_down(const chain_t *c, int v) {
  settle();
  if (ITEM == 0)
    for (int u = parent_of(c, v), below = v; u != 0; below = u, u = parent_of(c, u))
      CHAIN_SPARES(c)[u] = below;
  settle();
  for (int u = left_of(c, 0); u != v;) {
    u = (int)CHAIN_SPARES(c)[u];
    make_down(c, u);
  }
}

// Twice as many steps along the tree's outline as it has branches, from a place that all branches
// and both directions are equally likely to be: the outline is a circle, and which step follows
// depends on the tree alone, so that the posterior stays what it is.
static inline void tour(chain_t *c) {
  stream_t stream = stream_of(c, MOVE_START, 0);
  const int edges = c->nodes - 1, places = 2 * edges;
  const int place = min((int)(uniform(&stream) * places), places - 1);
  int v = 1 + place % edges;
  bool descends = place < edges;
  look_down(c, v);
  for (int step = 0; step < places; ++step) {
    const int u = parent_of(c, v);
    if (descends) {
      if (v >= c->tips && u != 0) interchange(c, v, step);
      draw_length(c, v, step);
      descends = v >= c->tips;
      if (descends) make_down(c, v = left_of(c, v));
    } else if (u == 0) {
      descends = true;
    } else if (v == left_of(c, u)) {
      make_down(c, v = right_of(c, u));
      descends = true;
    } else {
      make_up(c, v = u);
    }
  }
  renew_up(c, parent_of(c, v));
}

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

static inline target_t choose_edge(const chain_t *c, int v, int here, stream_t *stream) {
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
  settle();
  if (ITEM == 0) hang(c, g, u, w);
  settle();
  change_length(c, w, merged);
  renew_up(c, g);
  const target_t target = choose_edge(c, v, w, &stream);
  const int x = target.edge;
  const acc whole = length_of(c, x), lower = whole * uniform(&stream), upper = whole - lower;
  acc lnl = 0, ratio = 0;
  bool taken = is_allowed(c, lower) && is_allowed(c, upper);
  if (taken) {
    settle();
    if (ITEM == 0) {
      CHAIN_LENGTHS(c)[c->nodes] = lower;
      CHAIN_LENGTHS(c)[c->nodes + 1] = upper;
    }
    make_matrices(c, c->nodes, 2);
    side_t from_below = below(c, x), from_above = above(c, x);
    from_below.p = matrix_of(c, c->nodes);
    from_above.p = matrix_of(c, c->nodes + 1);
    lnl = at_node(c, from_below, from_above, below(c, v)).lnl;
    ratio = c->heat * (lnl - c->lnl) + target.weight_here - target.weight + log(whole / merged);
    settle();
    if (ITEM == 0) {
      attach(c, u, v, x);
      CHAIN_LENGTHS(c)[x] = lower;
      CHAIN_LENGTHS(c)[u] = upper;
    }
    settle();
    taken = is_accepted(&stream, ratio + log_prior(c) - prior);
    if (!taken) {
      settle();
      if (ITEM == 0) {
        hang(c, parent_of(c, u), u, x);
        CHAIN_LENGTHS(c)[x] = whole;
      }
      settle();
    }
  }
  if (taken) {
    c->lnl = lnl;
  } else {
    settle();
    if (ITEM == 0) {
      attach(c, u, v, w);
      CHAIN_LENGTHS(c)[w] = below_u;
      CHAIN_LENGTHS(c)[u] = above_u;
    }
    settle();
    make_matrices(c, w, 1);
  }
  make_matrices(c, u, 1);
  if (taken) make_matrices(c, x, 1);
  count_move(c, MOVE_REGRAFT, taken && x != w);
  renew_up(c, u);
}

static inline void own_stage(const plf_t *s, __global const int *records, int count, int aux,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  for (int job = GROUP; job < count; job += GROUPS) {
    __global const int *record = records + job * SWEEP_WORDS;
    const chunks_t of = case_chunks(s, record[SWEEP_CASE]);
    const int tips = record[SWEEP_TIPS];
    chain_t chain;
    chain.s = s;
    chain.record = record;
    chain.words = LENGTHS_AT(s) + record[SWEEP_STATE];
    chain.terms = terms;
    chain.counts = counts;
    chain.lanes = lanes;
    chain.tips = tips;
    chain.nodes = 2 * tips - 2;
    chain.parts = PARTED ? case_of(s, record[SWEEP_CASE])[CASE_PARTS] : 1;
    chain.model = record[SWEEP_MODEL];
    chain.first_block = chunk_begin(s, of.first);
    chain.last_block = chunk_end(s, of.end - 1);
    chain.sweep = (uint)chain.words[CHAIN_SWEEP];
    chain.heat = chain.words[CHAIN_HEAT];
    decide_model(&chain, record[SWEEP_PROPOSED]);
    for (int n = 0; n < record[SWEEP_SWEEPS]; ++n) {
      scale(&chain);
      for (int r = 0; r < record[SWEEP_REGRAFTS]; ++r) regraft(&chain, r);
      chain.total = tree_length(&chain);
      tour(&chain);
      ++chain.sweep;
    }
    settle();
    if (ITEM == 0) {
      chain.words[CHAIN_LNL] = chain.lnl;
      chain.words[CHAIN_SWEEP] = chain.sweep;
    }
    mark(book, since, FN_SWEEP);
  }
}

#include "worker.h"
