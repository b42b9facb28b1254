// Operands: the CLA of a slot, or the 0/1 vector of a tip's code.
#ifndef OPERAND_H
#define OPERAND_H

#include "session.h"

#if VW == 2
#define EACH_LANE(of) of(0), of(1)
#elif VW == 4
#define EACH_LANE(of) of(0), of(1), of(2), of(3)
#elif VW == 8
#define EACH_LANE(of) of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7)
#elif VW == 16
#define EACH_LANE(of)                                                                        \
  of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9), of(a), of(b), of(c), \
      of(d), of(e), of(f)
#endif

// x = every lane's row of a table with a row of states per tip code.
VECTOR_FUNCTION void table_rows(__global const real *table, code_v code, real_v x[STATES]) {
#if LANES == 1 && VW > 1
  const count_v at = TO_COUNT(code) * STATES;
#define OF_LANE(lane) table[at.JOIN(s, lane) + i]
  FOR_STATE(i) x[i] = (real_v)(EACH_LANE(OF_LANE));
#else
  FOR_STATE(i) x[i] = table[code * STATES + i];
#endif
}

// The tip vector of the codes: tip_table[code][state] for every lane.
VECTOR_FUNCTION void tip_expand(const plf_t *s, code_v code, real_v x[STATES]) {
#if TIP_LOOKUP || CODES != 1 << STATES
  table_rows(s->tip_table, code, x);
#else  // the code is the set of states, a bit each
  FOR_STATE(i) x[i] = TO_REAL((code >> (uchar)i) & (uchar)1);
#endif
}

// x = the operand's states in category k, returns its scaling count.
VECTOR_FUNCTION count_v operand_load(const plf_t *s, int operand, int block, int k,
                                     real_v x[STATES]) {
  if (operand < 0) {
    tip_expand(s, tip_codes(s, ~operand, block), x);
    return (count_v)(0);
  }
  const size_t row = cla_index(s, operand, block, k);
  FOR_STATE(i) x[i] = cla_load(s->cla, row, i);
  return count_load(s->scaler, row);
}

// y = M x for a row-major S x S matrix that all lanes share. Where every lane is a work-item the
// matrix comes from memory once per work-item: two entries a load halve those loads. Where a lane
// is a vector, sums side by side hide each other's latency.
VECTOR_FUNCTION void matvec(__global const real *m, const real_v x[STATES], real_v y[STATES]) {
#if LANES > 1 && STATES % 2 == 0
  __global const real_pair *pairs = (__global const real_pair *)m;
  FOR_STATE(i) {
    real_v sum = 0;
    for (int j = 0; j < STATES / 2; ++j) {
      const real_pair pair = pairs[i * (STATES / 2) + j];
      sum += pair.x * x[2 * j];
      sum += pair.y * x[2 * j + 1];
    }
    y[i] = sum;
  }
#else
  for (int i = 0; i < STATES; i += SUMS) {
    real_v sum[SUMS];
    FOR_SUM(r) sum[r] = 0;
    FOR_TERM(j) FOR_SUM(r) sum[r] += m[(i + r) * STATES + j] * x[j];
    FOR_SUM(r) y[i + r] = sum[r];
  }
#endif
}

#if TIP_LOOKUP
// y = P x of a tip, read from the table that PMATRICES made.
VECTOR_FUNCTION void tip_propagate(const plf_t *s, int tip, int length, int block, int k,
                                   real_v y[STATES]) {
  const size_t at = (size_t)length * s->partitions + s->block_partition[block];
  __global const real *table = s->tip_pmatrix + (at * CATEGORIES + k) * TIP_ROW;
  table_rows(table, tip_codes(s, tip, block), y);
}
#endif

// y = P[length] x, the operand seen from across its branch; returns its scaling count.
VECTOR_FUNCTION count_v propagate(const plf_t *s, int operand, int length, int block, int k,
                                  real_v y[STATES]) {
#if TIP_LOOKUP
  if (operand < 0 && length < s->tip_lengths) {
    tip_propagate(s, ~operand, length, block, k, y);
    return (count_v)(0);
  }
#endif
  real_v x[STATES];
  const count_v count = operand_load(s, operand, block, k, x);
  matvec(pmatrix_row(s, length, block, k), x, y);
  return count;
}

// Scales x up where all its states have fallen below the threshold; returns the new count.
// Zero vectors count too, so that they never look larger than what they were multiplied with.
VECTOR_FUNCTION count_v rescale(real_v x[STATES], count_v count) {
  real_v top = x[0];
  FOR_STATE(i) top = x[i] > top ? x[i] : top;
  if (ANY(top < SCALE_DOWN)) {
    const real_v factor = top < SCALE_DOWN ? (real_v)(SCALE_UP) : (real_v)(1);
    FOR_STATE(i) x[i] *= factor;
    count += ONES(top < SCALE_DOWN);
  }
  return count;
}

VECTOR_FUNCTION void slot_store(const plf_t *s, int slot, int block, int k, const real_v x[STATES],
                                count_v count) {
  const size_t row = cla_index(s, slot, block, k);
  FOR_STATE(i) cla_store(s->cla, row, i, x[i]);
  count_store(s->scaler, row, count);
}

#endif
