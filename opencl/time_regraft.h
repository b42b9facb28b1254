// The moves of a time tree that change its topology, each among all places that have the height.
// mltree/program/ops/time_sweeps.py has them in NumPy, and the ratio of each.
#ifndef TIME_REGRAFT_H
#define TIME_REGRAFT_H

#include "time_moves.h"

// Takes u, which carries the subtree v, out of the tree: its other child w comes in its place. For
// one work-item.
static inline void take_out(const chain_t *c, int u, int w) {
  const int g = parent_of(c, u);
  if (g >= 0) {
    hang(c, g, u, w);
  } else {
    CHAIN_PARENTS(c)[w] = -1;
    TIME(c)[TIME_ROOT] = w;
  }
}

// Puts u between x and its parent, or above x if that is the root. For one work-item.
static inline void put_in(const chain_t *c, int u, int v, int x) {
  const int g = parent_of(c, x);
  if (g >= 0) {
    hang(c, g, x, u);
  } else {
    CHAIN_PARENTS(c)[u] = -1;
    TIME(c)[TIME_ROOT] = u;
  }
  if (left_of(c, u) == v)
    CHAIN_RIGHTS(c)[u] = x;
  else
    CHAIN_LEFTS(c)[u] = x;
  CHAIN_PARENTS(c)[x] = u;
}

// The branches that a subtree can go to at a height: ln of the sum of their heated likelihoods, and
// one of them, chosen by those.
typedef struct {
  acc height, lnl, best, most, sum;
  int pendant;  // spare matrices of the subtree's branch
  int edge;
} places_t;

static inline acc log_weights(const places_t *at) {
  return at->edge < 0 ? -INFINITY : at->most + log(at->sum);
}

static inline void add_place(const chain_t *c, places_t *at, int x, acc lnl, stream_t *stream) {
  const acc weight = c->heat * lnl, score = weight + gumbel(stream);
  if (at->edge < 0 || score > at->best) {
    at->best = score;
    at->edge = x;
    at->lnl = lnl;
  }
  const acc most = fmax(at->most, weight);
  at->sum = at->sum * exp(at->most - most) + exp(weight - most);
  at->most = most;
}

// Above the root of the rest: the subtree v and the rest hang from u.
CHAIN_FUNCTION void try_above(chain_t *c, int u, int v, places_t *at, stream_t *stream) {
  const int top = root_of(c);
  if (!(at->height > height_of(c, top))) return;
  if (top >= c->tips) {
    const int left = left_of(c, top), right = right_of(c, top);
    const acc height = height_of(c, top);
    change_spares(c, 2, bounded(c, reach(c, left, height_of(c, left), height)),
                  bounded(c, reach(c, right, height_of(c, right), height)), 0);
    join(c, up_of(c, top), up_of(c, left), matrix_of(c, SPARE(c, 0)), up_of(c, right),
         matrix_of(c, SPARE(c, 1)));
  }
  const acc whole =
      reach(c, top, height_of(c, top), at->height) + reach(c, v, height_of(c, v), at->height);
  change_length(c, SPARE(c, 0), bounded(c, whole));
  add_place(c, at, top, at_edge(c, up_of(c, top), up_of(c, v), matrix_of(c, SPARE(c, 0))).lnl,
            stream);
}

// The branch above x, of which u takes the upper part.
CHAIN_FUNCTION void try_branch(chain_t *c, int u, int v, int x, places_t *at, stream_t *stream) {
  const int above = parent_of(c, x);
  if (!(height_of(c, x) < at->height && at->height < height_of(c, above))) return;
  acc upper = reach(c, u, at->height, height_of(c, above));
  if (parent_of(c, above) < 0) {
    const int y = sibling_of(c, x);
    upper += reach(c, y, height_of(c, y), height_of(c, above));
  }
  change_spares(c, 2, bounded(c, reach(c, x, height_of(c, x), at->height)), bounded(c, upper), 0);
  const side_t one = {up_of(c, x), matrix_of(c, SPARE(c, 0))};
  const side_t other = {down_of(c, x), matrix_of(c, SPARE(c, 1))};
  const side_t pendant = {up_of(c, v), matrix_of(c, at->pendant)};
  add_place(c, at, x, at_node(c, one, other, pendant).lnl, stream);
}

static inline places_t places_at(chain_t *c, int v, acc height, int spare) {
  const places_t at = {height, 0, 0, -INFINITY, 0, SPARE(c, spare), -1};
  change_length(c, at.pendant, bounded(c, reach(c, v, height_of(c, v), height)));
  return at;
}

// P matrices of all branches that pruning and regrafting may have changed.
CHAIN_FUNCTION void renew_around(const chain_t *c, int u, int v, int w, int x) {
  renew_length(c, v);
  renew_length(c, u);
  renew_length(c, w);
  renew_length(c, x);
  renew_children(c, root_of(c));
  renew_children(c, w);
  renew_children(c, x);
}

// CHOOSE: a subtree is pruned and regrafted at its height, or at another one that is a factor as
// far above it.
CHAIN_FUNCTION void regraft(chain_t *c, int number, bool is_moving) {
  const int move = is_moving ? TIME_MOVE_REHANG : TIME_MOVE_REGRAFT, root = root_of(c);
  stream_t stream = time_stream(c, move, number);
  int v = min((int)(uniform(&stream) * (c->nodes - 1)), c->nodes - 2);
  v += v >= root;
  const int u = parent_of(c, v), w = sibling_of(c, v), g = parent_of(c, u);
  const acc low = height_of(c, v), before = height_of(c, u);
  const acc step = is_moving ? step_of(c, move, &stream) : 0;
  const acc height = is_moving ? low + (before - low) * exp(step) : before;
  if (!(height > low)) {
    count_time_move(c, move, false);
    return;
  }
  acc ratio = is_moving ? change_of_height(c, u, height) + step : 0;
  ratio -= noise_log_prior(c) + ages_log_prior(c) + root_event(c, height_of(c, root));
  settle(c);
  if (LEADS(c)) take_out(c, u, w);
  settle(c);
  if (g >= 0) {
    renew_length(c, w);
    if (parent_of(c, w) == root_of(c)) renew_length(c, sibling_of(c, w));
    renew_up(c, g);
  } else {
    renew_children(c, w);
  }
  places_t here = places_at(c, v, before, 2), there = places_at(c, v, height, 3);
  if (is_moving) try_above(c, u, v, &here, &stream);
  try_above(c, u, v, &there, &stream);
  const acc lowest = fmin(before, height);
  const int top = root_of(c);
  for (int x = top < c->tips ? -1 : left_of(c, top); x >= 0; x = next_above(c, x, lowest)) {
    if (parent_of(c, x) != top) make_down(c, x);
    if (is_moving) try_branch(c, u, v, x, &here, &stream);
    try_branch(c, u, v, x, &there, &stream);
  }
  int x = there.edge;
  bool taken = x >= 0;
  if (taken) {
    settle(c);
    if (LEADS(c)) {
      put_in(c, u, v, x);
      HEIGHTS(c)[u] = height;
    }
    settle(c);
    if (is_moving) ratio += log_weights(&there) - log_weights(&here);
    ratio += noise_log_prior(c) + ages_log_prior(c) + root_event(c, height_of(c, root_of(c)));
    taken = is_accepted(&stream, ratio);
    settle(c);
    if (LEADS(c) && !taken) take_out(c, u, x);
    settle(c);
  }
  settle(c);
  if (LEADS(c)) {
    if (!taken) {
      put_in(c, u, v, w);
      HEIGHTS(c)[u] = before;
    } else {
      WARPED(c)[u] = warp(c, height);
    }
  }
  settle(c);
  if (taken) c->lnl = there.lnl;
  if (x < 0) x = w;
  count_time_move(c, move, taken && (is_moving || x != w));
  renew_around(c, u, v, w, x);
  renew_up(c, u);
  find_calibrated(c);
}

typedef struct {
  int moved;  // the child of v that goes up to its parent
  acc lnl, weight;
} swap_t;

// Length of the branch above a child of v that has changed places with v's sibling.
static inline acc length_up(const chain_t *c, int v, int moved) {
  const int u = parent_of(c, v);
  const acc length = reach(c, moved, height_of(c, moved), height_of(c, u));
  return bounded(
      c, parent_of(c, u) < 0 ? length + reach(c, v, height_of(c, v), height_of(c, u)) : length);
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
  leave_one(c, k, meeting(c, x, z, block, k), count);
}

// lnL of the topology ab|de around an inner branch.
CHAIN_FUNCTION sums_t at_quartet(chain_t *c, side_t a, side_t b, side_t d, side_t e, int p) {
  SUM_OF_BLOCKS(c, ONE_LNL, quartet_share(c, a, b, d, e, p, block, k));
}

// lnL of the tree in which v's sibling and one of its children change places. The spare length 0
// is that of the sibling below v, `spare` that of the child above v.
CHAIN_FUNCTION swap_t try_swap(chain_t *c, int v, int moved, int stays, int spare) {
  const int u = parent_of(c, v), other = sibling_of(c, v);
  const acc height = height_of(c, v), top = height_of(c, u);
  const bool is_at_root = parent_of(c, u) < 0;
  const side_t down = {up_of(c, other), matrix_of(c, SPARE(c, 0))};
  const side_t upwards = {up_of(c, moved), matrix_of(c, SPARE(c, spare))};
  swap_t swap = {moved, 0, 0};
  if (is_at_root)
    swap.lnl = at_node(c, below(c, stays), down, upwards).lnl;
  else
    swap.lnl = at_quartet(c, below(c, stays), down, upwards, above(c, u), matrix_of(c, v)).lnl;
  swap.weight = c->heat * swap.lnl + change_of_noise(c, moved, top - height_of(c, moved)) +
                change_of_noise(c, other, height - height_of(c, other));
  return swap;
}

CHAIN_FUNCTION void swap_nodes(const chain_t *c, int v, int moved, int other) {
  settle(c);
  if (LEADS(c)) {
    hang(c, parent_of(c, v), other, moved);
    hang(c, v, moved, other);
  }
  settle(c);
}

// CHOOSE: one of the three topologies around the branch above v, all heights kept; those that put
// a node below a younger one are none.
CHAIN_FUNCTION void interchange(chain_t *c, int v, int number) {
  const int other = sibling_of(c, v);
  if (!(height_of(c, other) < height_of(c, v))) return;
  const int left = left_of(c, v), right = right_of(c, v);
  stream_t stream = time_stream(c, TIME_MOVE_INTERCHANGE, number);
  const acc stays = c->heat * c->lnl + gumbel(&stream);
  const acc below_v = bounded(c, reach(c, other, height_of(c, other), height_of(c, v)));
  change_spares(c, 3, below_v, length_up(c, v, right), length_up(c, v, left));
  const swap_t one = try_swap(c, v, right, left, 1), two = try_swap(c, v, left, right, 2);
  const acc right_moves = one.weight + gumbel(&stream), left_moves = two.weight + gumbel(&stream);
  bool taken = right_moves > stays || left_moves > stays;
  if (taken) {
    const bool is_right = right_moves > left_moves || !(left_moves > stays);
    const swap_t swap = is_right ? one : two;
    const bool is_calibrated = TIME(c)[TIME_CALIBRATIONS] > 0;
    const acc before = is_calibrated ? ages_log_prior(c) : 0;
    swap_nodes(c, v, swap.moved, other);
    if (is_calibrated) taken = is_accepted(&stream, ages_log_prior(c) - before);
    if (taken) {
      c->lnl = swap.lnl;
      renew_length(c, other);
      renew_length(c, swap.moved);
      renew_length(c, v);
      if (parent_of(c, parent_of(c, v)) >= 0) make_down(c, v);
      find_calibrated(c);
    } else {
      swap_nodes(c, v, other, swap.moved);
    }
  }
  count_time_move(c, TIME_MOVE_INTERCHANGE, taken);
}

#endif
