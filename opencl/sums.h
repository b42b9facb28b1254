// From the categories of a pattern to its likelihood, and from lanes to a chunk's partial sum.
#ifndef SUMS_H
#define SUMS_H

#include "session.h"

// Terms of one pattern and category wait in local memory for the other categories: TERMS of
// them per (row, category, column), with one scaling count. On a CPU a column is a whole block.
#define TERM_AT(row, t, k, column) ((((row) * TERMS + (t)) * CATEGORIES + (k)) * COLUMNS + (column))
#define FAR_COUNT (1 << 24)  // above any count: 16 bits are stored
#define COUNT_AT(row, k, column) (((row) * CATEGORIES + (k)) * COLUMNS + (column))

// A category's scaling count; out of the way where its likelihood is 0 (rate 0 at a variable
// pattern), since what cannot be has no say in the scale of what can.
VECTOR_FUNCTION count_v telling_count(__local const real_v *terms, __local const count_v *counts,
                                      int row, int k, int column) {
  const count_v possible = ONES(terms[TERM_AT(row, 0, k, column)] != 0);
  return counts[COUNT_AT(row, k, column)] + (1 - possible) * FAR_COUNT;
}

// The smallest count over a lane's categories, which all of them are then scaled to.
VECTOR_FUNCTION count_v smallest_count(__local const real_v *terms, __local const count_v *counts,
                                       int row, int column) {
  count_v least = telling_count(terms, counts, row, 0, column);
  for (int k = 1; k < CATEGORIES; ++k) {
    const count_v count = telling_count(terms, counts, row, k, column);
    least = count < least ? count : least;  // PoCL 3.0 miscompiles this loop with min()
  }
  return least;
}

#define MOST_EXCESS ((EXPONENT_BIAS + 1) / SCALE_BITS)  // what is scaled down by more is nothing

// 2^(-SCALE_BITS * (count - least)).
VECTOR_FUNCTION acc_v relative_scale(count_v count, count_v least) {
  const count_v excess = count - least;
  const count_v exponent =
      EXPONENT_BIAS - SCALE_BITS * (excess < MOST_EXCESS ? excess : (count_v)(MOST_EXCESS));
  return POWER_OF_TWO(exponent > 0 ? exponent : (count_v)(0));
}

// Whether the categories of every pattern agree on its count, as most do.
VECTOR_FUNCTION bool is_one_scale(__local const count_v *counts, int row, int column) {
  const count_v first = counts[COUNT_AT(row, 0, column)];
  count_v differ = 0;
  for (int k = 1; k < CATEGORIES; ++k) differ |= counts[COUNT_AT(row, k, column)] ^ first;
  return !ANY(differ != 0);
}

// One lane's terms summed over the categories, all on the scale of the smallest count.
VECTOR_FUNCTION count_v sum_categories(__local const real_v *terms, __local const count_v *counts,
                                       int row, int column, acc_v sums[TERMS]) {
  for (int t = 0; t < TERMS; ++t) sums[t] = 0;
  if (is_one_scale(counts, row, column)) {
    for (int k = 0; k < CATEGORIES; ++k)
      for (int t = 0; t < TERMS; ++t) sums[t] += TO_ACC(terms[TERM_AT(row, t, k, column)]);
    return counts[COUNT_AT(row, 0, column)];
  }
  const count_v least = smallest_count(terms, counts, row, column);
  for (int k = 0; k < CATEGORIES; ++k) {
    const acc_v scale = relative_scale(telling_count(terms, counts, row, k, column), least);
    for (int t = 0; t < TERMS; ++t) sums[t] += TO_ACC(terms[TERM_AT(row, t, k, column)]) * scale;
  }
  return least;
}

// ln of a scaled likelihood.
VECTOR_FUNCTION acc_v scaled_log(acc_v likelihood, count_v count) {
  return log(likelihood) - TO_ACC(count) * (acc)(SCALE_BITS * LN_2);
}

// A chunk's partial sum of a cell: its first block sets it, the others add to it.
static inline void partial_add(const plf_t *s, int cell, int chunk, bool first, acc value) {
  __global acc *partial = s->partial + (size_t)cell * s->chunks + chunk;
  *partial = first ? value : *partial + value;
}

// The lanes' sum, as four strided sums that do not wait for each other.
static inline acc lanes_sum(__local const acc *lanes) {
#if VW % 4 == 0
  acc a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
  for (int lane = 4; lane < VW; lane += 4) {
    a += lanes[lane];
    b += lanes[lane + 1];
    c += lanes[lane + 2];
    d += lanes[lane + 3];
  }
  return (a + b) + (c + d);
#else
  acc sum = lanes[0];
  for (int lane = 1; lane < VW; ++lane) sum += lanes[lane];
  return sum;
#endif
}

#endif
