// The moves of a time tree that change all of it at once, or none: scalars, scalings.
// mltree/program/ops/time_sweeps.py has them in NumPy, and the ratio of each.
#ifndef TIME_SCALARS_H
#define TIME_SCALARS_H

#include "tree_prior.h"

// ln of a factor, or a step, within a move's window.
static inline acc step_of(const chain_t *c, int move, stream_t *stream) {
  return window_of(c, move) * (uniform(stream) - (acc)0.5);
}

// ACCEPT: a positive scalar times e^step, or a real one plus step; `log_prior` is of the rest of
// what it has a say in.
CHAIN_FUNCTION void walk_scalar(chain_t *c, int which, int move, int number) {
  if (!is_free(c, which)) return;
  stream_t stream = time_stream(c, move, number);
  const acc step = step_of(c, move, &stream), before = *scalar_of(c, which);
  const bool is_real =
      which == SCALAR_GROWTH || which == SCALAR_FRACTION || which == SCALAR_SAMPLING;
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

// ln of the density of a step from a cell's log size to the next: normal, or that of the log of an
// exponential variate whose mean is the size before.
static inline acc step_log_density(const chain_t *c, acc step) {
  if (is_skyline(c)) return step - exp(step);
  return -*scalar_of(c, SCALAR_PRECISION) / 2 * step * step;
}

// ln of a cell's factors, of its log size and of those beside it.
static inline acc cell_log_density(const chain_t *c, int g, acc size) {
  const int cells = cells_of(c);
  __global const acc *sizes = CELLS(c), *first = scalar_of(c, SCALAR_SIZE);
  acc sum = -sizes[cells + g] * exp(-size) - sizes[2 * cells + g] * size;
  if (g > 0) sum += step_log_density(c, size - sizes[g - 1]);
  if (g + 1 < cells) sum += step_log_density(c, sizes[g + 1] - size);
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
  const acc of_prior =
      scalar_log_prior(c, SCALAR_PRECISION, after) - scalar_log_prior(c, SCALAR_PRECISION, before);
  const acc power = (acc)(cells_of(c) - 1) / 2 + 1;
  const acc ratio = of_prior + power * step - (after - before) / 2 * squared_steps(c);
  const bool taken = is_accepted(&stream, ratio);
  count_time_move(c, TIME_MOVE_PRECISION, taken);
  if (taken) put(c, scalar_of(c, SCALAR_PRECISION), after);
}

// The scalars of priors, which have no say in the likelihood.
CHAIN_FUNCTION void walk_priors(chain_t *c) {
  const bool is_grid = cells_of(c) > 0;
  if (is_skyline(c)) {
    count_groups(c);
  } else {
    if (has_pairs(c)) count_lineages(c);
    if (is_grid) count_cells(c);
  }
  for (int round = 0; round < PRIOR_WALKS; ++round) {
    walk_scalar(c, SCALAR_SPREAD, TIME_MOVE_SPREAD, round);
    if (is_grid) {
      walk_cells(c, round);
      if (is_skyline(c))
        walk_groups(c, round);
      else
        walk_precision(c, round);
    } else {
      walk_scalar(c, SCALAR_SIZE, TIME_MOVE_SIZE, round);
      walk_scalar(c, SCALAR_GROWTH, TIME_MOVE_GROWTH, round);
      walk_scalar(c, SCALAR_FRACTION, TIME_MOVE_FRACTION, round);
      walk_scalar(c, SCALAR_SAMPLING, TIME_MOVE_SAMPLING, round);
    }
  }
  renew_warped(c);
}

// How much a node is older than its older child, times e^step, for the inner nodes from `top` down:
// with all tips of one date all their heights times e^step. Returns how many there are.
CHAIN_FUNCTION int stretch_heights(const chain_t *c, int top, acc step) {
  __global acc *heights = HEIGHTS(c), *before = BEFORE(c);
  const acc factor = exp(step);
  int count = 0;
  settle(c);
  for (int v = ITEM; v < c->nodes && c->member == 0; v += GROUP_SIZE(ROWS)) before[v] = heights[v];
  settle(c);
  for (int v = leftmost_tip(c, top);; v = next_up(c, v)) {
    if (v >= c->tips) {
      ++count;
      if (LEADS(c)) {
        const acc gap = before[v] - fmax(before[left_of(c, v)], before[right_of(c, v)]);
        heights[v] = older_child(c, v) + gap * factor;
      }
    }
    if (v == top) break;
  }
  settle(c);
  return count;
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

static inline acc timing_log_prior(const chain_t *c) {
  if (has_pairs(c)) count_lineages(c);
  return heights_log_prior(c) + ages_log_prior(c);
}

static inline acc whole_log_prior(const chain_t *c) {
  return timing_log_prior(c) + noise_log_prior(c);
}

static inline acc log_size_prior(const chain_t *c) {
  __global const acc *first = scalar_of(c, SCALAR_SIZE);
  if (cells_of(c) == 0) return scalar_log_prior(c, SCALAR_SIZE, *first);
  return scalar_log_prior(c, SCALAR_SIZE, exp(CELLS(c)[0])) + CELLS(c)[0];
}

// Population sizes as many times larger, births as many times rarer, as time is longer. Cells are
// kept where their waiting is counted.
static inline void scale_sizes(const chain_t *c, acc step) {
  const int cells = cells_of(c);
  settle(c);
  if (LEADS(c)) {
    if (cells == 0) *scalar_of(c, SCALAR_SIZE) *= exp(has_pairs(c) ? step : -step);
    for (int g = 0; g < cells; ++g) {
      CELLS(c)[cells + g] = CELLS(c)[g];
      CELLS(c)[g] += step;
    }
  }
  settle(c);
}

static inline void restore_sizes(const chain_t *c, acc size) {
  const int cells = cells_of(c);
  put(c, scalar_of(c, SCALAR_SIZE), size);
  if (LEADS(c))
    for (int g = 0; g < cells; ++g) CELLS(c)[g] = CELLS(c)[cells + g];
  settle(c);
}

// The clock, all heights, or time: heights, the clock and sizes of populations together, so that
// the tree's length and the coalescent's events stay. With W the duration of all branches, a clock
// of W / W' and a size of W' / W times what they were have derivatives whose product is 1.
CHAIN_FUNCTION void scale_all(chain_t *c, int move) {
  const bool of_clock = move != TIME_MOVE_TREE, of_heights = move != TIME_MOVE_CLOCK;
  if (of_clock && !is_free(c, SCALAR_CLOCK)) return;
  const bool of_size = of_clock && of_heights && is_free(c, SCALAR_SIZE);
  stream_t stream = time_stream(c, move, 0);
  const acc step = step_of(c, move, &stream), clock = clock_of(c);
  const acc size = *scalar_of(c, SCALAR_SIZE);
  acc of_step = of_clock ? step : 0, ratio = of_heights ? step * (c->tips - 1) : 0;
  ratio -= of_heights ? whole_log_prior(c) : noise_log_prior(c);
  if (of_heights) {
    const acc duration = of_clock ? whole_duration(c) : 1;
    stretch_heights(c, root_of(c), step);
    if (of_clock) of_step = log(duration / whole_duration(c));
  }
  if (of_size) {
    const bool is_scalar = cells_of(c) == 0;
    ratio -= log_size_prior(c);
    scale_sizes(c, -of_step);
    ratio += log_size_prior(c);
    if (is_scalar) ratio += has_pairs(c) ? -of_step : of_step;
  }
  const acc other = clock * exp(of_step);
  if (of_clock) put(c, scalar_of(c, SCALAR_CLOCK), other);
  ratio +=
      of_step + scalar_log_prior(c, SCALAR_CLOCK, other) - scalar_log_prior(c, SCALAR_CLOCK, clock);
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
  if (of_size) restore_sizes(c, size);
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
CHAIN_FUNCTION void stretch(chain_t *c) {
  if (clock_kind(c) != CLOCK_LOG_NORMAL || !is_free(c, SCALAR_SPREAD)) return;
  stream_t stream = time_stream(c, TIME_MOVE_STRETCH, 0);
  const acc step = step_of(c, TIME_MOVE_STRETCH, &stream);
  const acc before = *scalar_of(c, SCALAR_SPREAD), after = before * exp(step);
  const acc ratio =
      scalar_log_prior(c, SCALAR_SPREAD, after) - scalar_log_prior(c, SCALAR_SPREAD, before) + step;
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

#endif
