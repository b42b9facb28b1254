// From the categories of a pattern to its likelihood, and from lanes to a chunk's partial sum.
#ifndef SUMS_H
#define SUMS_H

#include "session.h"
#if STATE_ITEMS > 1
#include "matrix_tiles.h"
#endif

// Terms of one pattern and share of the categories wait in local memory for the other shares: TERMS
// of them per (row, share, column), with one scaling count. On a CPU a column is a whole block.
#define TERM_AT(row, t, k, column) ((((row) * TERMS + (t)) * SHARES + (k)) * COLUMNS + (column))
#define COUNT_AT(row, k, column) (((row) * SHARES + (k)) * COLUMNS + (column))

// A scaling count; out of the way where its likelihood is 0 (rate 0 at a variable pattern), since
// what cannot be has no say in the scale of what can.
VECTOR_FUNCTION count_v count_of(real_v likelihood, count_v count) {
  return count + (1 - ONES(likelihood != 0)) * FAR_COUNT;
}

VECTOR_FUNCTION count_v telling_count(__local const real_v *terms, __local const count_v *counts,
                                      int row, int k, int column) {
  return count_of(terms[TERM_AT(row, 0, k, column)], counts[COUNT_AT(row, k, column)]);
}

// The smallest count over a lane's categories, which all of them are then scaled to.
VECTOR_FUNCTION count_v smallest_count(__local const real_v *terms, __local const count_v *counts,
                                       int row, int column) {
  count_v least = telling_count(terms, counts, row, 0, column);
  for (int k = 1; k < SHARES; ++k) {
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
  for (int k = 1; k < SHARES; ++k) differ |= counts[COUNT_AT(row, k, column)] ^ first;
  return !ANY(differ != 0);
}

// Leaves category k's terms and their count for the sum over all. A work-item with several
// categories adds them up on the scale of the smaller count. Where none has, the count may be left
// beforehand (leave_count), so that no register holds it meanwhile.
VECTOR_FUNCTION void leave_count(__local count_v *counts, int row, int k, int column,
                                 count_v count) {
  if (SHARES == CATEGORIES && STATE_ITEM == 0) counts[COUNT_AT(row, k, column)] = count;
}

VECTOR_FUNCTION void leave_terms(__local real_v *terms, __local count_v *counts, int row, int k,
                                 int column, const real_v *own, count_v count) {
#if STATE_ITEMS > 1
  real_v sums[TERMS];
  for (int t = 0; t < TERMS; ++t) sums[t] = quad_sum(own[t]);
  own = sums;
  if (STATE_ITEM != 0) return;
#endif
#if SHARES < CATEGORIES
  if (k >= CATEGORY_ITEMS) {
    const int share = k % CATEGORY_ITEMS;
    const count_v mine = count_of(own[0], count);
    const count_v before = telling_count(terms, counts, row, share, column);
    const count_v least = mine < before ? mine : before;
    const real_v scale = TO_REAL(relative_scale(mine, least));
    const real_v scale_before = TO_REAL(relative_scale(before, least));
    for (int t = 0; t < TERMS; ++t) {
      __local real_v *term = terms + TERM_AT(row, t, share, column);
      *term = *term * scale_before + own[t] * scale;
    }
    counts[COUNT_AT(row, share, column)] = least < FAR_COUNT ? least : count;
    return;
  }
#endif
  for (int t = 0; t < TERMS; ++t) terms[TERM_AT(row, t, k, column)] = own[t];
  if (SHARES < CATEGORIES) counts[COUNT_AT(row, k, column)] = count;
}

// One lane's terms summed over the categories, all on the scale of the smallest count.
VECTOR_FUNCTION count_v sum_categories(__local const real_v *terms, __local const count_v *counts,
                                       int row, int column, acc_v sums[TERMS]) {
  for (int t = 0; t < TERMS; ++t) sums[t] = 0;
  if (is_one_scale(counts, row, column)) {
    for (int k = 0; k < SHARES; ++k)
      for (int t = 0; t < TERMS; ++t) sums[t] += TO_ACC(terms[TERM_AT(row, t, k, column)]);
    return counts[COUNT_AT(row, 0, column)];
  }
  const count_v least = smallest_count(terms, counts, row, column);
  for (int k = 0; k < SHARES; ++k) {
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
