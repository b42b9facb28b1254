// Operands: the CLA of a slot, or the 0/1 vector of a tip's code.
#ifndef OPERAND_H
#define OPERAND_H

#include "across.h"

#if WIDTH == 2
#define EACH_LANE(of) of(0), of(1)
#elif WIDTH == 4
#define EACH_LANE(of) of(0), of(1), of(2), of(3)
#elif WIDTH == 8
#define EACH_LANE(of) of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7)
#elif WIDTH == 16
#define EACH_LANE(of)                                                                        \
  of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9), of(a), of(b), of(c), \
      of(d), of(e), of(f)
#endif

// x = every lane's row of a table with a row of states per tip code.
VECTOR_FUNCTION void table_rows(__global const real *table, code_v code, real_v x[HELD]) {
#if WIDTH > 1
#define LANE_ROW(lane) table + (uint)code.JOIN(s, lane) * STATES
  __global const real *rows[] = {EACH_LANE(LANE_ROW)};
#if LANES == 1 && WIDTH >= 4 && STATES >= 4
  // Four states at a time, the last ones twice where four does not divide them.
  for (int next = 0; next < STATES; next += 4) {
    const int i = min(next, STATES - 4);
#define LANE_QUAD(lane) *(__global const real_quad *)(rows[0x##lane] + i)
    const real_quad quads[] = {EACH_LANE(LANE_QUAD)};
#define OF_QUAD(lane) quads[0x##lane][n]
    UNROLLED(n, 4) x[i + n] = (real_v)(EACH_LANE(OF_QUAD));
  }
#else
#define OF_LANE(lane) rows[0x##lane][STATE(i)]
  FOR_STATE(i) x[i] = IS_STATE(i) ? (real_v)(EACH_LANE(OF_LANE)) : (real_v)(0);
#endif
#else
  FOR_STATE(i) x[i] = IS_STATE(i) ? table[code * STATES + STATE(i)] : 0;
#endif
}

// The codes of an operand that is a tip, read ahead of what is looked up by them.
VECTOR_FUNCTION code_v operand_codes(const plf_t *s, int operand, int block) {
  return operand < 0 ? tip_codes(s, ~operand, block) : (code_v)(0);
}

// The tip vector of the codes: tip_table[code][state] for every lane.
VECTOR_FUNCTION void tip_expand(const plf_t *s, code_v code, real_v x[HELD]) {
#if TIP_LOOKUP || STATES > 8 || CODES != 1 << STATES
  table_rows(s->tip_table, code, x);
#else  // the code is the set of states, a bit each
  FOR_STATE(i) x[i] = TO_REAL((code >> (uchar)i) & (uchar)1);
#endif
}

// x = the operand's states in category k, returns its scaling count.
VECTOR_FUNCTION count_v operand_load(const plf_t *s, int operand, code_v codes, int block, int k,
                                     real_v x[HELD]) {
  if (operand < 0) {
    tip_expand(s, codes, x);
    return (count_v)(0);
  }
  const size_t row = cla_index(s, operand, block, k);
  FOR_STATE(i) x[i] = IS_STATE(i) ? cla_load(s->cla, row, STATE(i)) : (real_v)(0);
  return count_load(s->scaler, row);
}

// P x of every tip code, as PMATRICES made it.
static inline __global const real *tip_rows(const plf_t *s, int p, int block, int k) {
  return s->tip_pmatrix + MATRIX_AT(p + part_of(s, block), k, TIP_ROW);
}

// An operand seen from across its branch, y = P[p] x, in two steps: all that must come from
// memory can be on its way before any of it is waited for. Returns the operand's scaling count.
VECTOR_FUNCTION count_v fetch(const plf_t *s, int operand, code_v codes, int p, int block, int k,
                              real_v x[HELD]) {
  if (!TIP_LOOKUP || operand >= 0) return operand_load(s, operand, codes, block, k, x);
  table_rows(tip_rows(s, p, block, k), codes, x);
  return (count_v)(0);
}

VECTOR_FUNCTION void cross(const plf_t *s, int operand, int p, int block, int k,
                           const real_v x[HELD], real_v y[HELD]) {
  if (!TIP_LOOKUP || operand >= 0)
    across(s, p, block, k, x, y);
  else
    FOR_STATE(i) y[i] = x[i];
}

// The same, multiplied into y.
VECTOR_FUNCTION void cross_times(const plf_t *s, int operand, int p, int block, int k,
                                 const real_v x[HELD], real_v y[HELD]) {
  if (!TIP_LOOKUP || operand >= 0)
    across_times(s, p, block, k, x, y);
  else
    FOR_STATE(i) y[i] *= x[i];
}

// Both steps at once.
VECTOR_FUNCTION count_v seen(const plf_t *s, int operand, code_v codes, int p, int block, int k,
                             real_v y[HELD]) {
  real_v x[HELD];
  const count_v count = fetch(s, operand, codes, p, block, k, x);
  cross(s, operand, p, block, k, x, y);
  return count;
}

VECTOR_FUNCTION count_v propagate(const plf_t *s, int operand, int p, int block, int k,
                                  real_v y[HELD]) {
  return seen(s, operand, operand_codes(s, operand, block), p, block, k, y);
}

// The largest of a vector's numbers, to be compared with the threshold.
#if LANES > 1 && !SINGLE && WIDTH <= 2
// Doubles that are not negative compare with a power of two as their upper halves do (GPUs are
// little-endian), and integers cost a GPU less. NaN counts as large.
#if WIDTH == 1
#define UPPER(x) (as_int2(x).odd)
#define AS_MASK(x) (x)
#else
#define UPPER(x) (as_int4(x).odd)
#define AS_MASK(x) JOIN(convert_long, WIDTH)(x)
#endif
#define LEAST_TOP UPPER((real_v)(SCALE_DOWN))
typedef count_v top_v;
VECTOR_FUNCTION top_v top_of(const real_v x[HELD]) {
  count_v top = UPPER(x[0]);
  FOR_STATE(i) top = max(top, UPPER(x[i]));
#if STATE_ITEMS > 1
  return quad_max(top);
#else
  return top;
#endif
}
#else
#define AS_MASK(x) (x)
#define LEAST_TOP SCALE_DOWN
typedef real_v top_v;
VECTOR_FUNCTION top_v top_of(const real_v x[HELD]) {
  real_v top = x[0];
  FOR_STATE(i) top = x[i] > top ? x[i] : top;
  return top;
}
#endif

// Scales x up where all its states have fallen below the threshold; returns the new count.
// Zero vectors count too, so that they never look larger than what they were multiplied with.
VECTOR_FUNCTION count_v rescale(real_v x[HELD], count_v count) {
  const top_v top = top_of(x);
  if (ANY(top < LEAST_TOP)) {
    const real_v factor = AS_MASK(top < LEAST_TOP) ? (real_v)(SCALE_UP) : (real_v)(1);
    FOR_STATE(i) x[i] *= factor;
    count += ONES(top < LEAST_TOP);
  }
  return count;
}

VECTOR_FUNCTION void slot_store(const plf_t *s, int slot, int block, int k, const real_v x[HELD],
                                count_v count) {
  const size_t row = cla_index(s, slot, block, k);
  FOR_STATE(i)
    if (IS_STATE(i)) cla_store(s->cla, row, STATE(i), x[i]);
  count_store(s->scaler, row, count);
}

#endif
