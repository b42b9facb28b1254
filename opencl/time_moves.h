// The moves of a time tree that change a height or a rate.
// mltree/program/ops/time_sweeps.py has them in NumPy, and the ratio of each.
#ifndef TIME_MOVES_H
#define TIME_MOVES_H

#include "time_scalars.h"

// lnL of the tree if v, which is not the root, were at another height.
CHAIN_FUNCTION acc lnl_at_height(chain_t *c, int v, acc height) {
  const int u = parent_of(c, v);
  acc above_v = reach(c, v, height, height_of(c, u));
  if (parent_of(c, u) < 0) {
    const int w = sibling_of(c, v);
    above_v += reach(c, w, height_of(c, w), height_of(c, u));
  }
  above_v = bounded(c, above_v);
  const side_t upper = {down_of(c, v), matrix_of(c, SPARE(c, 2))};
  if (v < c->tips) {
    change_length(c, SPARE(c, 2), above_v);
    return at_edge(c, up_of(c, v), upper.x, upper.p).lnl;
  }
  const int left = left_of(c, v), right = right_of(c, v);
  change_spares(c, 3, bounded(c, reach(c, left, height_of(c, left), height)),
                bounded(c, reach(c, right, height_of(c, right), height)), above_v);
  const side_t one = {up_of(c, left), matrix_of(c, SPARE(c, 0))};
  const side_t other = {up_of(c, right), matrix_of(c, SPARE(c, 1))};
  return at_node(c, one, other, upper).lnl;
}

// ln ratio of the prior of the rate above x if its duration were another.
static inline acc change_of_noise(const chain_t *c, int x, acc duration) {
  if (clock_kind(c) != CLOCK_WHITE_NOISE || x == root_of(c)) return 0;
  const acc rate = rate_of(c, x);
  return rate_log_prior(c, x, rate, duration) - rate_log_prior(c, x, rate, duration_of(c, x));
}

static inline acc change_of_noises(const chain_t *c, int v, acc height) {
  acc sum = 0;
  if (v != root_of(c)) sum += change_of_noise(c, v, height_of(c, parent_of(c, v)) - height);
  if (v < c->tips) return sum;
  const int left = left_of(c, v), right = right_of(c, v);
  return sum + change_of_noise(c, left, height - height_of(c, left)) +
         change_of_noise(c, right, height - height_of(c, right));
}

// All ratios of priors of another height of v.
static inline acc change_of_prior(const chain_t *c, int v, acc height) {
  acc sum = change_of_height(c, v, height) + change_of_age(c, v, height);
  if (v == root_of(c)) sum += root_event(c, height) - root_event(c, height_of(c, v));
  return sum;
}

CHAIN_FUNCTION void take_height(chain_t *c, int v, acc height) {
  settle(c);
  if (LEADS(c)) {
    HEIGHTS(c)[v] = height;
    WARPED(c)[v] = warp(c, height);
  }
  settle(c);
  if (v >= c->tips) renew_children(c, v);
  if (v == root_of(c)) return;
  renew_length(c, v);
  if (parent_of(c, v) == root_of(c)) renew_length(c, sibling_of(c, v));
}

// ACCEPT: a node's height, uniform between what is above and below it.
CHAIN_FUNCTION void move_height(chain_t *c, int v, int number) {
  const bool is_tip = v < c->tips;
  const int move = is_tip ? TIME_MOVE_TIP : TIME_MOVE_HEIGHT;
  const acc above = height_of(c, parent_of(c, v));
  const acc low = is_tip ? EARLIEST(c)[v] : older_child(c, v);
  const acc high = is_tip ? fmin(LATEST(c)[v], above) : above;
  if (!(low < high)) return;
  stream_t stream = time_stream(c, move, number);
  const acc height = low + (high - low) * uniform(&stream);
  const bool is_within = height < above && (is_tip || height > low);
  acc ratio = change_of_prior(c, v, height) + change_of_noises(c, v, height);
  bool taken = is_within && ratio > -INFINITY;
  if (taken) {
    const acc lnl = lnl_at_height(c, v, height);
    taken = is_accepted(&stream, ratio + c->heat * (lnl - c->lnl));
    if (taken) {
      c->lnl = lnl;
      take_height(c, v, height);
    }
  }
  count_time_move(c, move, taken);
}

// The root's height above its older child, scaled. `number` is one of the tour's.
CHAIN_FUNCTION void move_root(chain_t *c, int number) {
  const int root = root_of(c), left = left_of(c, root), right = right_of(c, root);
  stream_t stream = time_stream(c, TIME_MOVE_ROOT, number);
  const acc step = step_of(c, TIME_MOVE_ROOT, &stream), low = older_child(c, root);
  const acc height = low + (height_of(c, root) - low) * exp(step);
  acc ratio = change_of_prior(c, root, height) + change_of_noises(c, root, height) + step;
  bool taken = height > low && ratio > -INFINITY;
  if (taken) {
    const acc whole =
        reach(c, left, height_of(c, left), height) + reach(c, right, height_of(c, right), height);
    change_length(c, SPARE(c, 0), bounded(c, whole));
    const acc lnl = at_edge(c, up_of(c, left), up_of(c, right), matrix_of(c, SPARE(c, 0))).lnl;
    taken = is_accepted(&stream, ratio + c->heat * (lnl - c->lnl));
    if (taken) {
      c->lnl = lnl;
      take_height(c, root, height);
    }
  }
  count_time_move(c, TIME_MOVE_ROOT, taken);
}

// The ratio of the rate above x once its duration is another and its length the same.
static inline acc change_of_rate(const chain_t *c, int x, acc duration) {
  const acc before = duration_of(c, x), rate = rate_of(c, x);
  return rate_log_prior(c, x, rate * (before / duration), duration) -
         rate_log_prior(c, x, rate, before) + log(before / duration);
}

// The same where all heights are others than those before the move.
static inline acc change_of_pace(const chain_t *c, int x) {
  if (x == root_of(c)) return 0;
  const acc before = BEFORE(c)[parent_of(c, x)] - BEFORE(c)[x];
  const acc duration = duration_of(c, x), rate = rate_of(c, x), factor = before / duration;
  if (before == duration) return 0;
  return rate_log_prior(c, x, rate * factor, duration) - rate_log_prior(c, x, rate, before) +
         log(factor);
}

// ACCEPT: inner heights of the whole tree, or of a clade, stretched, with rates that keep all
// lengths, and so lnL. `timing` is the prior of all times, before and behind it.
CHAIN_FUNCTION void keep_lengths(chain_t *c, int move, int number, acc *timing) {
  const int root = root_of(c), inner = c->tips - 1;
  stream_t stream = time_stream(c, move, number);
  const acc step = step_of(c, move, &stream);
  int top = root;
  if (move == TIME_MOVE_CLADE) top = c->tips + min((int)(uniform(&stream) * inner), inner - 1);
  const acc of_step = step * stretch_heights(c, top, step);
  bool taken = is_in_order(c);
  if (taken) {
    SUM_OVER(c, of_rates, x, c->nodes, change_of_pace(c, x))
    const acc after = timing_log_prior(c);
    taken = is_accepted(&stream, after - *timing + of_step + of_rates);
    if (taken) *timing = after;
  }
  count_time_move(c, move, taken);
  if (!taken) {
    restore_heights(c);
    return;
  }
  for (int x = ITEM; x < c->nodes && c->member == 0; x += GROUP_SIZE(ROWS))
    if (x != root) RATES(c)[x] *= (BEFORE(c)[parent_of(c, x)] - BEFORE(c)[x]) / duration_of(c, x);
  renew_warped(c);
}

// ACCEPT: another height of v, with rates around it that keep all lengths, and so lnL.
CHAIN_FUNCTION void keep_distance(chain_t *c, int v, int number) {
  if (clock_kind(c) == CLOCK_STRICT) return;
  const bool is_root = v == root_of(c);
  const int left = left_of(c, v), right = right_of(c, v);
  stream_t stream = time_stream(c, TIME_MOVE_DISTANCE, number);
  const acc low = older_child(c, v), before = height_of(c, v);
  acc height, above = INFINITY, ratio = 0;
  if (is_root) {
    const acc step = step_of(c, TIME_MOVE_ROOT, &stream);
    height = low + (before - low) * exp(step);
    ratio = step;
  } else {
    above = height_of(c, parent_of(c, v));
    height = low + (above - low) * uniform(&stream);
    ratio = height < above ? change_of_rate(c, v, above - height) : 0;
  }
  bool taken = height > low && height < above;
  if (taken) {
    ratio += change_of_rate(c, left, height - height_of(c, left)) +
             change_of_rate(c, right, height - height_of(c, right)) + change_of_prior(c, v, height);
    taken = is_accepted(&stream, ratio);
  }
  count_time_move(c, TIME_MOVE_DISTANCE, taken);
  if (!taken) return;
  settle(c);
  if (LEADS(c)) {
    RATES(c)[left] *= (before - height_of(c, left)) / (height - height_of(c, left));
    RATES(c)[right] *= (before - height_of(c, right)) / (height - height_of(c, right));
    if (!is_root) RATES(c)[v] *= (above - before) / (above - height);
    HEIGHTS(c)[v] = height;
    WARPED(c)[v] = warp(c, height);
  }
  settle(c);
}

// More of them where a clade's prior is no sum over all pairs of nodes.
static inline int clades_of(const chain_t *c) {
  return has_pairs(c) ? PACE_CLADES : max(PACE_CLADES, c->tips / 4);
}

// Heights and rates by moves that keep all lengths; a skyline's prior is too dear for many.
CHAIN_FUNCTION void change_pace(chain_t *c) {
  if (clock_kind(c) == CLOCK_STRICT || is_skyline(c)) return;
  for (int round = 0; round < PACE_ROUNDS; ++round) {
    acc timing = timing_log_prior(c);
    keep_lengths(c, TIME_MOVE_PACE, round, &timing);
    for (int n = 0; n < clades_of(c); ++n)
      keep_lengths(c, TIME_MOVE_CLADE, round * max(c->nodes, PACE_CLADES) + n, &timing);
    for (int v = c->tips; v < c->nodes; ++v) keep_distance(c, v, (2 + round) * c->nodes + v);
    walk_scalar(c, SCALAR_SPREAD, TIME_MOVE_SPREAD, PRIOR_WALKS + round);
  }
}

// A normal distribution that the log of a rate is drawn from.
typedef struct {
  acc mean, precision;
} normal_t;

// That with the first two derivatives of the heated posterior at log-rate x, within bounds.
static inline normal_t log_rate_fitted(const chain_t *c, int v, acc x, acc length, sums_t at) {
  const acc spread = *scalar_of(c, SCALAR_SPREAD), rate = exp(x);
  acc shape = 1 / (spread * spread), slope = shape * (1 - rate), own = shape * rate;
  if (clock_kind(c) == CLOCK_LOG_NORMAL) {
    slope = -(x + spread * spread / 2) * shape;
    own = shape;
  } else if (clock_kind(c) == CLOCK_WHITE_NOISE) {
    const acc length_of_v = clock_of(c) * duration_of(c, v);
    shape = v == root_of(c) ? 1 : fmax(length_of_v / spread, (acc)LEAST_SHAPE);
    slope = shape * (1 - rate);
    own = shape * rate;
  }
  const acc least = clock_kind(c) == CLOCK_LOG_NORMAL ? shape : fmin(shape, (acc)1);
  const acc first = slope + c->heat * at.slope * length;
  const acc curve = own - c->heat * (at.curve * length * length + at.slope * length);
  const normal_t fit = {0, fmax(curve, (acc)LEAST_PRECISION * least)};
  const acc most = (acc)MOST_SHIFT / sqrt(fit.precision), shift = first / fit.precision;
  const normal_t of = {x + fmin(fmax(shift, -most), most), fit.precision};
  return of;
}

static inline acc normal_log_density(normal_t of, acc x) {
  return log(of.precision) / 2 - of.precision / 2 * (x - of.mean) * (x - of.mean);
}

// DRAW: the rate of the branch above v, from what is seen at its ends; the root's from nothing.
CHAIN_FUNCTION void draw_rate(chain_t *c, int v, int number) {
  if (clock_kind(c) == CLOCK_STRICT) return;
  const bool is_root = v == root_of(c);
  const sums_t nothing = {c->lnl, 0, 0};
  stream_t stream = time_stream(c, TIME_MOVE_RATE, number);
  const acc duration = duration_of(c, v), x = log(rate_of(c, v));
  const acc scale = is_root ? 0 : clock_of(c) * duration;
  int one = 0, other = 0;
  acc rest = 0;
  if (!is_root) {
    one = up_of(c, v);
    other = down_of(c, v);
    const int u = parent_of(c, v), w = sibling_of(c, v);
    if (u == root_of(c)) rest = reach(c, w, height_of(c, w), height_of(c, u));
  }
  const sums_t here = is_root ? nothing : at_edge(c, one, other, matrix_of(c, v));
  const normal_t forth = log_rate_fitted(c, v, x, scale * rate_of(c, v), here);
  const acc drawn = forth.mean + normal(&stream) / sqrt(forth.precision), rate = exp(drawn);
  c->lnl = here.lnl;
  sums_t there = nothing;
  there.lnl = here.lnl;
  if (!is_root) {
    change_length(c, SPARE(c, 0), bounded(c, rest + scale * rate));
    there = at_edge(c, one, other, matrix_of(c, SPARE(c, 0)));
  }
  const normal_t back = log_rate_fitted(c, v, drawn, scale * rate, there);
  const acc prior = rate_log_prior(c, v, rate, duration) + drawn -
                    rate_log_prior(c, v, rate_of(c, v), duration) - x;
  const acc ratio = prior + c->heat * (there.lnl - here.lnl) + normal_log_density(back, x) -
                    normal_log_density(forth, drawn);
  const bool taken = rate > 0 && is_accepted(&stream, ratio);
  count_time_move(c, TIME_MOVE_RATE, taken);
  if (!taken) return;
  put(c, RATES(c) + v, rate);
  c->lnl = there.lnl;
  renew_length(c, v);
  if (!is_root && parent_of(c, v) == root_of(c)) renew_length(c, sibling_of(c, v));
}

#endif
