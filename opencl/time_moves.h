// The moves of a time tree that leave its topology: scalars, heights, rates.
// mltree/program/ops/time_sweeps.py has them in NumPy, and the ratio of each.
#ifndef TIME_MOVES_H
#define TIME_MOVES_H

#include "tree_prior.h"

// ln of a factor, or a step, within a move's window.
static inline acc step_of(const chain_t *c, int move, stream_t *stream) {
  return window_of(c, move) * (uniform(stream) - (acc)0.5);
}

// ACCEPT: a positive scalar times e^step, or a real one plus step; `log_prior` is of the rest of
// what it has a say in.
static inline void walk_scalar(chain_t *c, int which, int move, int number) {
  if (!is_free(c, which)) return;
  stream_t stream = time_stream(c, move, number);
  const acc step = step_of(c, move, &stream), before = *scalar_of(c, which);
  const bool is_real = which == SCALAR_GROWTH || which == SCALAR_FRACTION;
  const acc after = is_real ? before + step : before * exp(step);
  acc ratio = scalar_log_prior(c, which, after) - scalar_log_prior(c, which, before);
  if (!is_real) ratio += step;
  bool taken = ratio > -INFINITY;
  if (taken) {
    const bool is_of_rates = which == SCALAR_SPREAD;
    ratio -= is_of_rates ? rates_log_prior(c) : heights_log_prior(c);
    put(c, scalar_of(c, which), after);
    ratio += is_of_rates ? rates_log_prior(c) : heights_log_prior(c);
    taken = is_accepted(&stream, ratio);
    if (!taken) put(c, scalar_of(c, which), before);
  }
  count_time_move(c, move, taken);
}

// Time that pairs wait, times their number, and events, in each cell of a skygrid.
static inline acc waiting_in(const chain_t *c, int i, acc from, acc to, acc top) {
  const acc begin = fmax(height_of(c, i), from), end = fmin(top, to);
  return end > begin ? weight_of(c, i) * (end - begin) : 0;
}

static inline void count_cells(const chain_t *c) {
  const acc top = height_of(c, root_of(c)), width = TIME(c)[TIME_CELL_WIDTH];
  const int cells = cells_of(c);
  for (int g = 0; g < cells; ++g) {
    const acc from = g * width, to = g + 1 < cells ? from + width : (acc)INFINITY;
    SUM_OVER(c, waiting, i, c->nodes, waiting_in(c, i, from, to, top))
    SUM_OVER(c, events, j, c->nodes, j >= c->tips && cell_of(c, height_of(c, j)) == g ? 1 : 0)
    if (LEADS(c)) {
      CELLS(c)[cells + g] = waiting;
      CELLS(c)[2 * cells + g] = events;
    }
  }
  settle(c);
}

// ln of a cell's factors, of its log size and of those beside it.
static inline acc cell_log_density(const chain_t *c, int g, acc size) {
  const int cells = cells_of(c);
  __global const acc *sizes = CELLS(c), *first = scalar_of(c, SCALAR_SIZE);
  const acc precision = *scalar_of(c, SCALAR_PRECISION);
  acc sum = -sizes[cells + g] * exp(-size) - sizes[2 * cells + g] * size;
  if (g > 0) sum -= precision / 2 * (size - sizes[g - 1]) * (size - sizes[g - 1]);
  if (g + 1 < cells) sum -= precision / 2 * (sizes[g + 1] - size) * (sizes[g + 1] - size);
  if (g == 0) sum += log_density((int)first[1], first[2], first[3], exp(size)) + size;
  return sum;
}

static inline void walk_cells(chain_t *c, int round) {
  const int cells = cells_of(c);
  for (int g = 0; g < cells; ++g) {
    stream_t stream = time_stream(c, TIME_MOVE_CELL, round * cells + g);
    const acc before = CELLS(c)[g], after = before + step_of(c, TIME_MOVE_CELL, &stream);
    const acc ratio = cell_log_density(c, g, after) - cell_log_density(c, g, before);
    const bool taken = is_accepted(&stream, ratio);
    count_time_move(c, TIME_MOVE_CELL, taken);
    if (taken) put(c, CELLS(c) + g, after);
  }
}

static inline acc squared_steps(const chain_t *c) {
  acc sum = 0;
  for (int g = 1; g < cells_of(c); ++g) {
    const acc step = CELLS(c)[g] - CELLS(c)[g - 1];
    sum += step * step;
  }
  return sum;
}

static inline void walk_precision(chain_t *c, int round) {
  if (!is_free(c, SCALAR_PRECISION)) return;
  stream_t stream = time_stream(c, TIME_MOVE_PRECISION, round);
  const acc step = step_of(c, TIME_MOVE_PRECISION, &stream);
  const acc before = *scalar_of(c, SCALAR_PRECISION), after = before * exp(step);
  const acc of_prior = scalar_log_prior(c, SCALAR_PRECISION, after) -
                       scalar_log_prior(c, SCALAR_PRECISION, before);
  const acc power = (acc)(cells_of(c) - 1) / 2 + 1;
  const acc ratio = of_prior + power * step - (after - before) / 2 * squared_steps(c);
  const bool taken = is_accepted(&stream, ratio);
  count_time_move(c, TIME_MOVE_PRECISION, taken);
  if (taken) put(c, scalar_of(c, SCALAR_PRECISION), after);
}

// The scalars of priors, which have no say in the likelihood.
static inline void walk_priors(chain_t *c) {
  const bool is_grid = tree_kind(c) == TREE_PRIOR_SKYGRID;
  if (tree_kind(c) != TREE_PRIOR_BIRTH_DEATH) count_lineages(c);
  if (is_grid) count_cells(c);
  for (int round = 0; round < PRIOR_WALKS; ++round) {
    walk_scalar(c, SCALAR_SPREAD, TIME_MOVE_SPREAD, round);
    if (is_grid) {
      walk_cells(c, round);
      walk_precision(c, round);
    } else {
      walk_scalar(c, SCALAR_SIZE, TIME_MOVE_SIZE, round);
      walk_scalar(c, SCALAR_GROWTH, TIME_MOVE_GROWTH, round);
      walk_scalar(c, SCALAR_FRACTION, TIME_MOVE_FRACTION, round);
    }
  }
  renew_warped(c);
}

static inline bool is_in_order(const chain_t *c) {
  bool is = true;
  for (int v = c->tips; v < c->nodes; ++v) is &= height_of(c, v) > older_child(c, v);
  return is;
}

// The root's height above the oldest tip times e^step, and each other inner node at the same share
// of the way from the oldest tip below it, its floor, to its parent. Floors are left among the spare
// numbers. Where all tips have one date, all heights are multiplied by e^step.
static inline void stretch_heights(const chain_t *c, acc step) {
  const int root = root_of(c);
  __global acc *heights = HEIGHTS(c), *before = BEFORE(c), *floors = CHAIN_SPARES(c);
  settle(c);
  if (LEADS(c)) {
    for (int v = leftmost_tip(c, root);; v = next_up(c, v)) {
      before[v] = heights[v];
      floors[v] = v < c->tips ? heights[v] : fmax(floors[left_of(c, v)], floors[right_of(c, v)]);
      if (v == root) break;
    }
    heights[root] = floors[root] + (before[root] - floors[root]) * exp(step);
    for (int v = left_of(c, root); v >= 0; v = next_above(c, v, -INFINITY)) {
      if (v < c->tips) continue;
      const int u = parent_of(c, v);
      const acc share = (before[v] - floors[v]) / (before[u] - floors[v]);
      heights[v] = floors[v] + share * (heights[u] - floors[v]);
    }
  }
  settle(c);
}

// ln of that map's derivatives, but for the root's.
static inline acc stretched_by(const chain_t *c, int v) {
  if (v == root_of(c)) return 0;
  const int u = parent_of(c, v);
  const acc floor_of_v = CHAIN_SPARES(c)[v];
  return log((HEIGHTS(c)[u] - floor_of_v) / (BEFORE(c)[u] - floor_of_v));
}

// The durations of all branches together.
static inline acc whole_duration(const chain_t *c) {
  SUM_OVER(c, sum, v, c->nodes, v == root_of(c) ? 0 : duration_of(c, v))
  return sum;
}

static inline void restore_heights(const chain_t *c) {
  settle(c);
  for (int v = c->tips + ITEM; v < c->nodes && c->member == 0; v += GROUP_SIZE(ROWS))
    HEIGHTS(c)[v] = BEFORE(c)[v];
  settle(c);
}

static inline acc whole_log_prior(const chain_t *c) {
  if (tree_kind(c) != TREE_PRIOR_BIRTH_DEATH) count_lineages(c);
  return heights_log_prior(c) + ages_log_prior(c) + noise_log_prior(c);
}

// All heights, the clock, or the clock against all heights, so that the tree's length stays: the
// clock times W / W', where W is the duration of all branches, has the derivative W / W'.
static inline void scale_all(chain_t *c, int move) {
  const bool of_clock = move != TIME_MOVE_TREE, of_heights = move != TIME_MOVE_CLOCK;
  if (of_clock && !is_free(c, SCALAR_CLOCK)) return;
  stream_t stream = time_stream(c, move, 0);
  const acc step = step_of(c, move, &stream), clock = clock_of(c);
  acc of_step = of_clock ? step : 0, ratio = of_heights ? step : 0;
  ratio -= of_heights ? whole_log_prior(c) : noise_log_prior(c);
  if (of_heights) {
    const acc duration = of_clock ? whole_duration(c) : 1;
    stretch_heights(c, step);
    SUM_OVER(c, of_map, n, c->tips - 1, stretched_by(c, c->tips + n))
    ratio += of_map;
    if (of_clock) of_step = log(duration / whole_duration(c));
  }
  const acc other = clock * exp(of_step);
  if (of_clock) put(c, scalar_of(c, SCALAR_CLOCK), other);
  ratio += of_step + scalar_log_prior(c, SCALAR_CLOCK, other) -
           scalar_log_prior(c, SCALAR_CLOCK, clock);
  acc lnl = c->lnl;
  const bool leaves_lengths = move == TIME_MOVE_UP_DOWN && TIME(c)[TIME_IS_LEVEL] != 0;
  bool taken = is_in_order(c) && ratio > -INFINITY;
  if (taken) {
    ratio += of_heights ? whole_log_prior(c) : noise_log_prior(c);
    taken = ratio > -INFINITY;
  }
  const bool is_tried = taken && !leaves_lengths;
  if (is_tried) lnl = tried_lnl(c);
  taken = taken && is_accepted(&stream, ratio + c->heat * (lnl - c->lnl));
  count_time_move(c, move, taken);
  if (taken) {
    c->lnl = lnl;
    if (of_heights) renew_warped(c);
    return;
  }
  if (of_heights) restore_heights(c);
  if (of_clock) put(c, scalar_of(c, SCALAR_CLOCK), clock);
  if (is_tried) turn_back(c);
}

static inline void stretch_rates(const chain_t *c, acc from, acc to) {
  settle(c);
  for (int v = ITEM; v < c->nodes && c->member == 0; v += GROUP_SIZE(ROWS)) {
    BEFORE(c)[v] = RATES(c)[v];
    RATES(c)[v] = exp(to / from * (log(RATES(c)[v]) + from * from / 2) - to * to / 2);
  }
  settle(c);
}

// The spread of log-normal rates times e^step, each rate as far from the mean, in deviations, as it
// was: those distances have the same prior whatever the spread.
static inline void stretch(chain_t *c) {
  if (clock_kind(c) != CLOCK_LOG_NORMAL || !is_free(c, SCALAR_SPREAD)) return;
  stream_t stream = time_stream(c, TIME_MOVE_STRETCH, 0);
  const acc step = step_of(c, TIME_MOVE_STRETCH, &stream);
  const acc before = *scalar_of(c, SCALAR_SPREAD), after = before * exp(step);
  const acc ratio = scalar_log_prior(c, SCALAR_SPREAD, after) -
                    scalar_log_prior(c, SCALAR_SPREAD, before) + step;
  bool taken = ratio > -INFINITY;
  if (taken) {
    stretch_rates(c, before, after);
    put(c, scalar_of(c, SCALAR_SPREAD), after);
    const acc lnl = tried_lnl(c);
    taken = is_accepted(&stream, ratio + c->heat * (lnl - c->lnl));
    if (taken) {
      c->lnl = lnl;
    } else {
      settle(c);
      for (int v = ITEM; v < c->nodes && c->member == 0; v += GROUP_SIZE(ROWS))
        RATES(c)[v] = BEFORE(c)[v];
      put(c, scalar_of(c, SCALAR_SPREAD), before);
      turn_back(c);
    }
  }
  count_time_move(c, TIME_MOVE_STRETCH, taken);
}

// lnL of the tree if v, which is not the root, were at another height.
static inline acc lnl_at_height(chain_t *c, int v, acc height) {
  const int u = parent_of(c, v);
  acc above_v = reach(c, v, height, height_of(c, u));
  if (parent_of(c, u) < 0) {
    const int w = sibling_of(c, v);
    above_v += reach(c, w, height_of(c, w), height_of(c, u));
  }
  change_length(c, SPARE(c, 2), bounded(c, above_v));
  const side_t upper = {down_of(c, v), matrix_of(c, SPARE(c, 2))};
  if (v < c->tips) return at_edge(c, up_of(c, v), upper.x, upper.p).lnl;
  const int left = left_of(c, v), right = right_of(c, v);
  change_length(c, SPARE(c, 0), bounded(c, reach(c, left, height_of(c, left), height)));
  change_length(c, SPARE(c, 1), bounded(c, reach(c, right, height_of(c, right), height)));
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

static inline void take_height(chain_t *c, int v, acc height) {
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
static inline void move_height(chain_t *c, int v, int number) {
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
static inline void move_root(chain_t *c, int number) {
  const int root = root_of(c), left = left_of(c, root), right = right_of(c, root);
  stream_t stream = time_stream(c, TIME_MOVE_ROOT, number);
  const acc step = step_of(c, TIME_MOVE_ROOT, &stream), low = older_child(c, root);
  const acc height = low + (height_of(c, root) - low) * exp(step);
  acc ratio = change_of_prior(c, root, height) + change_of_noises(c, root, height) + step;
  bool taken = height > low && ratio > -INFINITY;
  if (taken) {
    const acc whole = reach(c, left, height_of(c, left), height) +
                      reach(c, right, height_of(c, right), height);
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

// ACCEPT: another height of v, with rates around it that keep all lengths, and so lnL.
static inline void keep_distance(chain_t *c, int v, int number) {
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
             change_of_rate(c, right, height - height_of(c, right)) +
             change_of_prior(c, v, height);
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
    shape = v == root_of(c) ? 1 : clock_of(c) * duration_of(c, v) / spread;
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
static inline void draw_rate(chain_t *c, int v, int number) {
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
