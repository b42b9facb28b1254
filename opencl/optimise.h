// REDUCE and OPTIMISE: from partial sums to the next trial of every branch length.
#ifndef OPTIMISE_H
#define OPTIMISE_H

#include "grid.h"

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
      const chunks_t residue = {own.of.first + v, own.of.end};
      mine[v] = strided_sum(s, own.cell, residue, REDUCE_WIDTH, 0);
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

// The strided sums alone, of a device that has so many residues; a work-item each. Those of a panel
// that is not the first go on from what the panels before have left.
STAGE_FUNCTION void reduce_residues(const plf_t *s, __global const int *records, int count,
                                    int most, int group_size, int stage) {
  const int width = s->residues;
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

// Newton's next length from t, or UPHILL times up or down where the curvature is wrong; never out
// of [t / MOST_GROWTH, MOST_GROWTH t + LEAST_REACH] in one step. A target is far from a maximum if
// that cut it short on the way up, or if it leads out of saturation: such a step may gain little,
// yet others follow.
static inline acc newton_target(const plf_t *s, acc t, acc slope, acc step, bool *far) {
  const bool newton = isfinite(step);
  const acc next = newton ? t - step : slope > 0 ? UPHILL * t : t / UPHILL;
  const acc highest = MOST_GROWTH * t + (acc)LEAST_REACH;
  const acc target = clamp(clamp(next, t / MOST_GROWTH, highest), s->min_length, s->max_length);
  *far |= target != t && (newton ? next > highest : t > SATURATED);
  return target;
}

// step = H^-1 g by Cramer's rule where -H is positive definite; returns whether it is.
static inline bool solve_tripod(const acc g[3], __global const acc *h, acc step[3]) {
  const acc a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5];  // 11 22 33 12 13 23
  const acc minor = a * b - d * d;
  const acc det = c * minor - a * f * f + 2 * d * e * f - b * e * e;
  if (!(a < 0 && minor > 0 && det < 0)) return false;
  step[0] = ((b * c - f * f) * g[0] + (e * f - c * d) * g[1] + (d * f - b * e) * g[2]) / det;
  step[1] = ((e * f - c * d) * g[0] + (a * c - e * e) * g[1] + (d * e - a * f) * g[2]) / det;
  step[2] = ((d * f - b * e) * g[0] + (d * e - a * f) * g[1] + minor * g[2]) / det;
  return true;
}

static inline void tripod_targets(const plf_t *s, __global const acc *g,
                                  __global const acc *lengths, __global acc *target, bool *far) {
  const acc slopes[3] = {g[0], g[1], g[2]};
  acc step[3];
  const bool joint = solve_tripod(slopes, g + 3, step);
  for (int j = 0; j < 3; ++j) {
    const acc alone = g[3 + j] < 0 ? slopes[j] / g[3 + j] : (acc)INFINITY;
    target[j] = newton_target(s, lengths[j], slopes[j], joint ? step[j] : alone, far);
  }
}

// One guarded step of a group: a better trial becomes the best and gives a new target, a worse
// one halves the step back towards the best.
static inline void optimise_group(const plf_t *s, __global const int *record, int g, int member,
                                  int members) {
  __global acc *control = control_of(s, g);
  if (control[CONTROL_ACTIVE] == 0) return;
  const acc lnl = SUMS_AT(s)[record[GROUP_LNL_SUM]];
  const acc gain = lnl - control[CONTROL_BEST];
  const acc passes = control[CONTROL_PASSES] + 1;
  const bool first = passes == 1, better = first || gain >= 0;
  const acc last_step = control[CONTROL_STEP];
  const acc step = first ? 1 : better ? fmin((acc)1, last_step * (acc)STEP_GROWTH) : last_step / 2;
  const bool came_far = control[CONTROL_FAR] == passes - 1;
  const bool near_top = !first && !came_far && gain < control[CONTROL_EPSILON] * last_step;
  const bool hopeless = !first && !came_far && lnl + HOPE * gain < control[CONTROL_FLOOR];
  const bool done = passes >= control[CONTROL_MAX_PASSES] ||
                    (better ? near_top || hopeless : step * (1 << MAX_STEP_HALVINGS) < 1);
  const int offset = record[GROUP_FIRST_LENGTH], count = record[GROUP_COUNT];
  __global acc *lengths = LENGTHS_AT(s) + offset, *best = BEST_AT(s) + offset;
  __global acc *target = TARGET_AT(s) + offset;
  __global const acc *cells = SUMS_AT(s) + record[GROUP_FIRST_SUM];
  if (members > 1) sync_group(CLK_GLOBAL_MEM_FENCE);
  bool far = false;
  if (better && record[GROUP_KIND] == STEP_TRIPOD) tripod_targets(s, cells, lengths, target, &far);
  for (int j = member; j < count; j += members) {
    if (better) {
      const acc t = lengths[j];
      best[j] = t;
      if (record[GROUP_KIND] == STEP_DIAGONAL) {
        const acc slope = cells[2 * j], curve = cells[2 * j + 1];
        target[j] = newton_target(s, t, slope, curve < 0 ? slope / curve : (acc)INFINITY, &far);
      }
    }
    lengths[j] = done ? best[j] : best[j] + step * (target[j] - best[j]);
  }
  if (far) control[CONTROL_FAR] = passes;  // whoever writes it writes the same
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
                                   bool alone, int group_size) {
  if (alone) {
    const int items = GROUPS * group_size;
    for (int g = GROUP * group_size + ITEM; g < count; g += items)
      optimise_group(s, records + g * GROUP_WORDS, g, 0, 1);
  } else {
    for (int g = GROUP; g < count; g += GROUPS)
      optimise_group(s, records + g * GROUP_WORDS, g, ITEM, group_size);
  }
}

#endif
