// Priors of a time tree: densities of numbers, of its heights, of its branches' rates, of the ages
// of groups. Constants are left out: only ratios matter here. mltree/program/ops/time_sweeps.py has
// the same in NumPy, mltree/sampling/tree_priors.py the whole densities.
#ifndef TREE_PRIOR_H
#define TREE_PRIOR_H

#include "skyline.h"

CHAIN_FUNCTION acc log_density(int kind, acc a, acc b, acc x) {
  const acc z = (x - a) / b;
  switch (kind) {
    case PRIOR_LOG_NORMAL: {
      if (x <= 0) return -INFINITY;
      const acc of_log = (log(x) - a) / b;
      return -of_log * of_log / 2 - log(x);
    }
    case PRIOR_GAMMA:
      return x > 0 ? (a - 1) * log(x) - b * x : -INFINITY;
    case PRIOR_UNIFORM:
      return x >= a && x <= b ? 0 : -INFINITY;
    case PRIOR_BETA:
      return x > 0 && x < 1 ? (a - 1) * log(x) + (b - 1) * log1p(-x) : -INFINITY;
    case PRIOR_NORMAL:
      return -z * z / 2;
    case PRIOR_LAPLACE:
      return -fabs(z);
  }
  return 0;
}

static inline acc scalar_log_prior(const chain_t *c, int which, acc x) {
  __global const acc *words = scalar_of(c, which);
  return log_density((int)words[1], words[2], words[3], x);
}

static inline bool is_free(const chain_t *c, int which) {
  return (int)scalar_of(c, which)[1] != PRIOR_FIXED;
}

// Lineages meet in pairs, as coalescents have it; others are born and die.
static inline bool has_pairs(const chain_t *c) {
  const int kind = tree_kind(c);
  return kind == TREE_PRIOR_COALESCENT || kind == TREE_PRIOR_SKYGRID || kind == TREE_PRIOR_SKYLINE;
}

static inline int clock_kind(const chain_t *c) {
  return (int)TIME(c)[TIME_CLOCK_KIND];
}

// The cell of a skygrid that a height is in.
static inline int cell_of(const chain_t *c, acc height) {
  return (int)fmin(height / TIME(c)[TIME_CELL_WIDTH], (acc)(cells_of(c) - 1));
}

// A height on the scale on which each pair of lineages meets at rate 1: the integral of 1 / N.
static inline acc warp(const chain_t *c, acc height) {
  if (tree_kind(c) == TREE_PRIOR_SKYGRID) {
    const acc width = TIME(c)[TIME_CELL_WIDTH];
    const int cell = cell_of(c, height);
    acc sum = 0;
    for (int g = 0; g < cell; ++g) sum += width * exp(-CELLS(c)[g]);
    return sum + (height - cell * width) * exp(-CELLS(c)[cell]);
  }
  const acc growth = *scalar_of(c, SCALAR_GROWTH), size = *scalar_of(c, SCALAR_SIZE);
  return (growth == 0 ? height : expm1(growth * height) / growth) / size;
}

// Births and deaths give a node at height h the factor e^(-rate h) / (seen + unseen e^(-rate h))^2.
typedef struct {
  acc rate, seen, unseen;
} births_t;

static inline births_t births_of(const chain_t *c) {
  const acc size = *scalar_of(c, SCALAR_SIZE), growth = *scalar_of(c, SCALAR_GROWTH);
  const acc present = *scalar_of(c, SCALAR_FRACTION);
  births_t of = {size, present, 1 - present - growth};
  if (tree_kind(c) != TREE_PRIOR_SERIAL) return of;
  const acc births = growth * size, more = births - size;
  const acc paths = 4 * births * *scalar_of(c, SCALAR_SAMPLING) * size;
  of.rate = sqrt(more * more + paths);
  const acc least = more > 0 ? paths / (of.rate + more) : of.rate - more;
  of.seen = (least + 2 * births * present) / (2 * of.rate);
  of.unseen = 1 - of.seen;
  return of;
}

static inline acc log_seen(births_t of, acc height) {
  return log(of.seen + of.unseen * exp(-of.rate * height));
}

// The factor of an inner node at this height.
static inline acc event(const chain_t *c, acc height) {
  if (!has_pairs(c)) {
    const births_t of = births_of(c);
    return -of.rate * height - 2 * log_seen(of, height);
  }
  if (tree_kind(c) == TREE_PRIOR_SKYGRID) return -CELLS(c)[cell_of(c, height)];
  return *scalar_of(c, SCALAR_GROWTH) * height - log(*scalar_of(c, SCALAR_SIZE));
}

// The further factor of the root of births and deaths.
static inline acc root_event(const chain_t *c, acc height) {
  if (has_pairs(c)) return 0;
  const births_t of = births_of(c);
  return -of.rate * height - log_seen(of, height);
}

// The factor of a tip at this height: where sampling goes on, what a node has, turned over.
static inline acc tip_event(const chain_t *c, acc height) {
  return tree_kind(c) == TREE_PRIOR_SERIAL ? -event(c, height) : 0;
}

static inline acc lineages_by(const chain_t *c, int i, int v, acc low, acc high) {
  if (i == v) return 0;
  const acc passed = high - fmin(fmax(WARPED(c)[i], low), high);
  return i < c->tips ? passed : -passed;
}

// ln ratio of the prior of heights for a node v that goes to another height, but for what it is to
// the root. A node that rises leaves one lineage more to meet the others on its way.
CHAIN_FUNCTION acc change_of_height(const chain_t *c, int v, acc height) {
  if (is_skyline(c)) return change_of_skyline(c, v, height);
  const acc before = height_of(c, v);
  const acc of_events = v < c->tips ? tip_event(c, height) - tip_event(c, before)
                                    : event(c, height) - event(c, before);
  if (!has_pairs(c)) return of_events;
  const acc from = WARPED(c)[v], to = warp(c, height), low = fmin(from, to), high = fmax(from, to);
  SUM_OVER(c, others, i, c->nodes, lineages_by(c, i, v, low, high))
  const acc pairs = v < c->tips ? -others : others - (high - low);
  return of_events - (to > from ? pairs : -pairs);
}

static inline bool is_before(const chain_t *c, int j, int i) {
  const acc own = height_of(c, i), other = height_of(c, j);
  return other < own || (other == own && j < i);
}

// Lineages before each node, seen from the tips, among the spare numbers.
CHAIN_FUNCTION void count_lineages(const chain_t *c) {
  settle(c);
  for (int i = ITEM; i < c->nodes && c->member == 0; i += GROUP_SIZE(ROWS)) {
    int count = 0;
    for (int j = 0; j < c->nodes; ++j)
      if (is_before(c, j, i)) count += j < c->tips ? 1 : -1;
    CHAIN_SPARES(c)[i] = count;
  }
  settle(c);
}

CHAIN_FUNCTION void renew_warped(const chain_t *c) {
  settle(c);
  for (int i = ITEM; i < c->nodes && c->member == 0; i += GROUP_SIZE(ROWS))
    WARPED(c)[i] = warp(c, height_of(c, i));
  settle(c);
}

// What the pairs before a node add to the time in which pairs can meet.
static inline acc weight_of(const chain_t *c, int i) {
  const acc lineages = CHAIN_SPARES(c)[i];
  return i < c->tips ? lineages : 1 - lineages;
}

static inline acc node_factor(const chain_t *c, int i, acc top) {
  const acc height = height_of(c, i);
  const acc own = i < c->tips ? tip_event(c, height) : event(c, height);
  if (!has_pairs(c)) return own;
  return own - weight_of(c, i) * (top - warp(c, height));
}

// ln of what does not depend on heights: rates of births, and of samples at once or one by one.
static inline acc births_constant(const chain_t *c) {
  const acc r = *scalar_of(c, SCALAR_SIZE), a = *scalar_of(c, SCALAR_GROWTH);
  const acc present = *scalar_of(c, SCALAR_FRACTION);
  if (tree_kind(c) == TREE_PRIOR_BIRTH_DEATH)
    return (c->tips - 1) * log(r * present) + c->tips * log1p(-a);
  const births_t of = births_of(c);
  SUM_OVER(c, at_once, i, c->tips, present > 0 && LATEST(c)[i] == 0 ? 1 : 0)
  const acc later = c->tips - at_once, sampling = *scalar_of(c, SCALAR_SAMPLING) * r;
  acc sum = c->tips * log(a * r) - log(of.rate) - log(of.seen);
  if (at_once > 0) sum += at_once * log(present);
  return later > 0 ? sum + later * log(sampling) : sum;
}

// ln of the prior of all heights; of a coalescent with lineages counted before.
CHAIN_FUNCTION acc heights_log_prior(const chain_t *c) {
  if (is_skyline(c)) return skyline_log_prior(c);
  const acc root = height_of(c, root_of(c));
  const acc top = has_pairs(c) ? warp(c, root) : 0;
  SUM_OVER(c, sum, i, c->nodes, node_factor(c, i, top))
  return has_pairs(c) ? sum : sum + root_event(c, root) + births_constant(c);
}

// ln of the prior of a rate, of the branch above v if it had this duration.
static inline acc rate_log_prior(const chain_t *c, int v, acc rate, acc duration) {
  const acc spread = *scalar_of(c, SCALAR_SPREAD);
  if (!(rate > 0)) return -INFINITY;
  if (clock_kind(c) == CLOCK_LOG_NORMAL) {
    const acc z = (log(rate) + spread * spread / 2) / spread;
    return -z * z / 2 - log(spread) - log(rate);
  }
  acc shape = 1 / (spread * spread);
  if (clock_kind(c) == CLOCK_WHITE_NOISE)
    shape = v == root_of(c) ? 1 : fmax(clock_of(c) * duration / spread, (acc)LEAST_SHAPE);
  return shape * log(shape) - lgamma(shape) + (shape - 1) * log(rate) - shape * rate;
}

static inline acc duration_of(const chain_t *c, int v) {
  return v == root_of(c) ? 1 : height_of(c, parent_of(c, v)) - height_of(c, v);
}

CHAIN_FUNCTION acc rates_log_prior(const chain_t *c) {
  if (clock_kind(c) == CLOCK_STRICT) return 0;
  SUM_OVER(c, sum, v, c->nodes, rate_log_prior(c, v, rate_of(c, v), duration_of(c, v)))
  return sum;
}

// The same where it depends on durations.
CHAIN_FUNCTION acc noise_log_prior(const chain_t *c) {
  return clock_kind(c) == CLOCK_WHITE_NOISE ? rates_log_prior(c) : 0;
}

static inline int tips_below(const chain_t *c, int top, int most) {
  int count = 0;
  for (int v = leftmost_tip(c, top); v != top && count <= most; v = next_up(c, v))
    count += v < c->tips;
  return top < c->tips ? 1 : count;
}

// The node whose height a calibration is about; -1 where its tips are to be a group and are none.
static inline int calibrated_node(const chain_t *c, __global const acc *own) {
  __global const acc *tips = CALIBRATIONS(c) + (int)TIME(c)[TIME_CALIBRATIONS] * CALIBRATION_WORDS;
  const int first = (int)own[CALIBRATION_FIRST], count = (int)own[CALIBRATION_COUNT];
  int top = (int)tips[first];
  for (int n = 1; n < count; ++n)
    for (int v = (int)tips[first + n]; v != top;) {
      if (height_of(c, v) < height_of(c, top))
        v = parent_of(c, v);
      else
        top = parent_of(c, top);
    }
  if (own[CALIBRATION_IS_GROUP] != 0 && tips_below(c, top, count) != count) return -1;
  return own[CALIBRATION_IS_STEM] != 0 && parent_of(c, top) >= 0 ? parent_of(c, top) : top;
}

static inline acc age_log_density(__global const acc *own, acc height) {
  return log_density((int)own[CALIBRATION_KIND], own[CALIBRATION_A], own[CALIBRATION_B],
                     height - own[CALIBRATION_OFFSET]);
}

// ln of the densities of the groups' ages.
CHAIN_FUNCTION acc ages_log_prior(const chain_t *c) {
  acc sum = 0;
  for (int n = 0; n < (int)TIME(c)[TIME_CALIBRATIONS]; ++n) {
    __global const acc *own = CALIBRATIONS(c) + n * CALIBRATION_WORDS;
    const int node = calibrated_node(c, own);
    sum += node < 0 ? -INFINITY : age_log_density(own, height_of(c, node));
  }
  return sum;
}

// Keeps the calibrated nodes in mind, until the topology changes.
CHAIN_FUNCTION void find_calibrated(const chain_t *c) {
  const int count = (int)TIME(c)[TIME_CALIBRATIONS];
  if (count == 0) return;
  settle(c);
  for (int n = 0; n < count && LEADS(c); ++n) {
    __global acc *own = CALIBRATIONS(c) + n * CALIBRATION_WORDS;
    own[CALIBRATION_NODE] = calibrated_node(c, own);
  }
  settle(c);
}

// ln ratio of those densities for a node that goes to another height.
static inline acc change_of_age(const chain_t *c, int v, acc height) {
  acc sum = 0;
  for (int n = 0; n < (int)TIME(c)[TIME_CALIBRATIONS]; ++n) {
    __global const acc *own = CALIBRATIONS(c) + n * CALIBRATION_WORDS;
    if ((int)own[CALIBRATION_NODE] == v)
      sum += age_log_density(own, height) - age_log_density(own, height_of(c, v));
  }
  return sum;
}

#endif
