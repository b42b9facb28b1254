// REDUCE and OPTIMISE: from partial sums to the next trial of every branch length.
#ifndef OPTIMISE_H
#define OPTIMISE_H

#include "grid.h"
#include "triplet_step.h"

// sum + a cell's partials of every width-th chunk, in order.
static inline acc strided_sum(const plf_t *s, int cell, chunks_t of, int width, acc sum) {
  __global const acc *partial = s->partial + (size_t)cell * s->chunks;
  for (int chunk = of.first; chunk < of.end; chunk += width) sum += partial[chunk];
  return sum;
}

// What a REDUCE stage makes of its n-th sum, of records with `most` of them at most.
typedef struct {
  int cell, sum;
  chunks_t of;
  bool is_there;
} reduced_t;

static inline reduced_t reduced(const plf_t *s, __global const int *records, int n, int most) {
  const int at = n % most;
  __global const int *record = records + n / most * REDUCTION_WORDS;
  const reduced_t sum = {record[REDUCTION_CELL] + at, record[REDUCTION_SUM] + at,
                         chunks_of(s, record[REDUCTION_FIRST_PART], record[REDUCTION_PARTS]),
                         at < record[REDUCTION_COUNT]};
  return sum;
}

// sum[n] = its cell's partials, as REDUCE_WIDTH strided sums added in order.
STAGE_FUNCTION void reduce_stage(const plf_t *s, __global const int *records, int count, int most,
                                 __local acc *strided, int group_size, int stage) {
  const int members = group_size < REDUCE_WIDTH ? 1 : REDUCE_WIDTH;
  const int teams = group_size / members, team = ITEM / members, member = ITEM % members;
  const int groups = GROUPS, sums = count * most;
  const reduced_t first = reduced(s, records, 0, most);
  __local acc *mine = strided + team * REDUCE_WIDTH;
  for (int base = GROUP * teams; base < sums; base += groups * teams) {
    const int n = base + team;
    reduced_t own = first;  // a lone record is read but once
    own.cell += n;
    own.sum += n;
    if (count > 1) own = reduced(s, records, min(n, sums - 1), most);
    const bool active = team < teams && n < sums && own.is_there;
    for (int v = member; active && v < REDUCE_WIDTH; v += members) {
      const chunks_t reduction_lane = {own.of.first + v, own.of.end};
      mine[v] = strided_sum(s, own.cell, reduction_lane, REDUCE_WIDTH, 0);
    }
    sync_group(CLK_LOCAL_MEM_FENCE);
    if (active && member == 0) {
      acc sum = mine[0];
      for (int v = 1; v < REDUCE_WIDTH; ++v) sum += mine[v];
      SUMS_AT(s)[own.sum] = sum;
      if (!isfinite(sum)) report_fault(s, FAULT_NOT_FINITE, stage);
    }
    sync_group(CLK_LOCAL_MEM_FENCE);
  }
}

// The strided sums alone, of a device that has so many reduction lanes; a work-item each. Those of
// a slice that is not the first go on from what the slices before have left.
STAGE_FUNCTION void reduce_lanes(const plf_t *s, __global const int *records, int count, int most,
                                 int group_size, int stage) {
  const int width = s->reduction_lanes;
  const long jobs = (long)count * most * width, items = (long)GROUPS * group_size;
  for (long job = (long)GROUP * group_size + ITEM; job < jobs; job += items) {
    const int v = job % width, n = job / width, at = n % most;
    __global const int *record = records + n / most * REDUCTION_WORDS;
    if (at >= record[REDUCTION_COUNT]) continue;
    chunks_t of = chunks_of(s, record[REDUCTION_FIRST_PART], record[REDUCTION_PARTS]);
    of.first += (v + width - (s->first_chunk + of.first) % width) % width;
    __global acc *sum = SUMS_AT(s) + (size_t)record[REDUCTION_SUM] * width +
                        (size_t)v * record[REDUCTION_COUNT] + at;
    *sum = strided_sum(s, record[REDUCTION_CELL] + at, of, width, s->first_chunk == 0 ? 0 : *sum);
    if (!isfinite(*sum)) report_fault(s, FAULT_NOT_FINITE, stage);
  }
}

// A length that follows t, cut to the reach of a step and to the bounds.
static inline acc within_reach(const plf_t *s, acc t, acc next) {
  const acc reached = clamp(next, t / MOST_DECLINE, MOST_GROWTH * t + (acc)LEAST_REACH);
  return clamp(reached, s->min_length, s->max_length);
}

// What the step of a group promises, and what compares it with the last one: sums over lengths.
typedef struct {
  acc promise;        // what lnL gains, were it a quadratic
  acc change, mixed;  // squared change of the step, and its product with the step, by curvature
  acc far;            // whether a length may be far from a maximum, whatever is promised
} aim_t;

#define AIM_TERMS 4

// The length that follows where the curvature is of no use.
static inline acc blind_next(acc t, acc slope) {
  return slope > 0 ? UPHILL * t : t / DOWNHILL;
}

// Whether a length may be far from a maximum: where the way up was cut short, or out of saturation.
static inline bool is_far(acc t, acc next, acc target, bool newton) {
  return target != t && (newton ? next > MOST_GROWTH * t + (acc)LEAST_REACH : t > (acc)SATURATED);
}

// Newton's next length from t, or blindly up or down where the curvature is wrong.
static inline acc newton_target(const plf_t *s, acc t, acc slope, acc step, aim_t *aim) {
  const bool newton = isfinite(step);
  const acc next = newton ? t - step : blind_next(t, slope);
  const acc target = within_reach(s, t, next);
  if (is_far(t, next, target, newton)) aim->far = 1;
  aim->promise += (newton ? slope / 2 : slope) * (target - t);
  return target;
}

// Of one length alone. On the way down lnL is that of a count, n log t - m t, whose top is at
// t / (1 + step / t): short branches are all but that.
static inline acc lone_target(const plf_t *s, acc t, acc slope, acc curve, aim_t *aim) {
  const acc step = curve < 0 ? slope / curve : (acc)INFINITY;
  return newton_target(s, t, slope, step > 0 ? t * step / (t + step) : step, aim);
}

// The top of a triplet's quadratic within reach: Newton's step, or, where that was cut short or -H
// is not positive definite, what sweeps over the lengths one by one lead to.
static inline void triplet_targets(const plf_t *s, __global const acc *g,
                                   __global const acc *lengths, acc target[3], aim_t *aim) {
  const acc slopes[3] = {g[0], g[1], g[2]};
  acc h[6], step[3], next[3], change[3];
  bool alone[3];
  uncouple(g + 3, alone, h);
  const bool joint = solve_triplet(slopes, alone, h, step);
  bool sweeps = !joint;
  for (int j = 0; j < 3; ++j) {
    next[j] = alone[j] ? blind_next(lengths[j], slopes[j]) : lengths[j] - (joint ? step[j] : 0);
    target[j] = within_reach(s, lengths[j], next[j]);
    if (!alone[j] && target[j] != next[j]) sweeps = true;
    change[j] = target[j] - lengths[j];
  }
  for (int at = 0; sweeps && at < 3 * REACH_SWEEPS; ++at) {
    const int j = at % 3;
    if (alone[j]) continue;
    next[j] = target[j] - (slopes[j] + bent(h, j, change)) / h[j];
    target[j] = within_reach(s, lengths[j], next[j]);
    change[j] = target[j] - lengths[j];
  }
  for (int j = 0; j < 3; ++j) {
    if (is_far(lengths[j], next[j], target[j], !alone[j])) aim->far = 1;
    aim->promise += (slopes[j] + bent(h, j, change) / 2) * change[j];
  }
}

// A group's numbers.
typedef struct {
  __global acc *lengths, *best, *target;
  __global const acc *cells;  // slopes and curvatures
  int count;
} group_t;

// What lengths v, v + REDUCE_WIDTH, ... add to the aim.
static inline aim_t lane_of_aim(const plf_t *s, const group_t *g, int v) {
  aim_t aim = {0, 0, 0, 0};
  for (int j = v; j < g->count; j += REDUCE_WIDTH) {
    const acc t = g->lengths[j], slope = g->cells[2 * j], curve = g->cells[2 * j + 1];
    const acc step = lone_target(s, t, slope, curve, &aim) - t;
    const acc change = step - (g->target[j] - g->best[j]), weight = fmax(-curve, (acc)0);
    aim.change += weight * change * change;
    aim.mixed += weight * step * change;
  }
  return aim;
}

// The reduction lanes' sum in order, the same however many members a group has.
static inline aim_t diagonal_aim(const plf_t *s, const group_t *g, int member, int members,
                                 __local acc *terms) {
  aim_t sum = {0, 0, 0, 0};
  for (int first = 0; first < REDUCE_WIDTH; first += members) {
    const int v = first + member;
    aim_t own = {0, 0, 0, 0};
    if (v < REDUCE_WIDTH && v < g->count) own = lane_of_aim(s, g, v);
    if (members == 1) {
      sum.promise += own.promise, sum.change += own.change;
      sum.mixed += own.mixed, sum.far += own.far;
    } else if (v < REDUCE_WIDTH) {
      __local acc *at = terms + v * AIM_TERMS;
      at[0] = own.promise, at[1] = own.change, at[2] = own.mixed, at[3] = own.far;
    }
  }
  if (members > 1) {
    sync_group(CLK_LOCAL_MEM_FENCE);
    for (int v = 0; v < REDUCE_WIDTH; ++v) {
      __local const acc *at = terms + v * AIM_TERMS;
      sum.promise += at[0], sum.change += at[1], sum.mixed += at[2], sum.far += at[3];
    }
  }
  return sum;
}

// One guarded step of a group: a better trial becomes the best and gives a new aim, a worse one
// halves the step back towards the best. A whole step has of the last one's change what leaves
// least of both, were lnL a quadratic (Anderson's mixing).
static inline void optimise_group(const plf_t *s, __global const int *record, int number,
                                  int member, int members, __local acc *terms) {
  __global acc *control = control_of(s, number);
  if (control[CONTROL_ACTIVE] == 0) return;
  const acc lnl = SUMS_AT(s)[record[GROUP_LNL_SUM]], epsilon = control[CONTROL_EPSILON];
  const acc gain = lnl - control[CONTROL_BEST], last_step = control[CONTROL_STEP];
  const acc passes = control[CONTROL_PASSES] + 1, floor = control[CONTROL_FLOOR];
  const bool first = passes == 1, better = first || gain >= 0;
  const bool is_last = passes >= control[CONTROL_MAX_PASSES];
  const int offset = record[GROUP_FIRST_LENGTH];
  const group_t g = {LENGTHS_AT(s) + offset, BEST_AT(s) + offset, TARGET_AT(s) + offset,
                     SUMS_AT(s) + record[GROUP_FIRST_SUM], record[GROUP_COUNT]};
  const bool is_triplet = record[GROUP_KIND] == STEP_TRIPLET;
  acc triplet[3];
  aim_t aim = {0, 0, 0, 0};
  if (better && is_triplet) triplet_targets(s, g.cells, g.lengths, triplet, &aim);
  if (better && !is_triplet) aim = diagonal_aim(s, &g, member, members, terms);
  const bool far = aim.far > 0;
  const acc promise = fabs(aim.promise);  // a loss where sweeps did not suffice
  const bool near_top = promise < (acc)LEAST_PROMISE * epsilon;
  const bool below_floor = lnl + GAIN_PER_PROMISE * promise < floor;
  const bool goes_on = better && (first || far || gain >= epsilon * last_step);
  const acc step = goes_on ? fmin((acc)1, last_step * (acc)STEP_GROWTH) : last_step / 2;
  const bool spent = !goes_on && step * (1 << MAX_STEP_HALVINGS) < 1;
  const bool done = is_last || spent || (better && !far && (near_top || below_floor));
  const acc share = aim.change > 0 ? aim.mixed / aim.change : 0;
  const bool mixes = better && !first && !is_triplet && share < 1;  // steps that grow tell nothing
  const acc mix = mixes ? fmax(share, (acc)-MOST_MIXED) : 0;
  if (members > 1) sync_group(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  for (int j = member; j < g.count; j += members) {
    const acc t = g.lengths[j], last = g.target[j];
    acc target = last, next = target;
    if (better) {
      target =
          is_triplet ? triplet[j] : lone_target(s, t, g.cells[2 * j], g.cells[2 * j + 1], &aim);
      next = mix == 0 ? target : within_reach(s, t, target - mix * (target - last));
      g.best[j] = t;
      g.target[j] = target;
    }
    const acc best = g.best[j];
    g.lengths[j] = done ? best : step < 1 ? best + step * (target - best) : next;
  }
  if (member == 0) {
    control[CONTROL_ACTIVE] = !done;
    control[CONTROL_BEST] = better ? lnl : control[CONTROL_BEST];
    control[CONTROL_STEP] = step;
    control[CONTROL_PASSES] = passes;
    control[CONTROL_ACCEPTED] = better;
  }
}

// `alone`: many small groups, a work-item each; otherwise a work-group each.
STAGE_FUNCTION void optimise_stage(const plf_t *s, __global const int *records, int count,
                                   bool alone, __local acc *terms, int group_size) {
  if (alone) {
    const int items = GROUPS * group_size;
    for (int g = GROUP * group_size + ITEM; g < count; g += items)
      optimise_group(s, records + g * GROUP_WORDS, g, 0, 1, terms);
  } else {
    for (int g = GROUP; g < count; g += GROUPS)
      optimise_group(s, records + g * GROUP_WORDS, g, ITEM, group_size, terms);
  }
}

#endif
