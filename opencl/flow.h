// flow: what lnL gains with the rate matrices of a mixture's classes, by what is seen from both
// ends of an edge (x, y) of length t, in terms of eigenvectors:
//   cell + (m S + a) S + b += sum_k F_k[a, b] sum_l n_l w_k / L_l u_a v_b,  u = V^-1 x,  v = V^-1 y
//   F_k[a, b] = (e^(lambda_a r_k t) - e^(lambda_b r_k t)) / (lambda_a - lambda_b)
// over the categories k of class m, with ln L_l as EVALUATE_SITES has left it. A record has cells
// for some of these sums only, from a first one on.
#ifndef FLOW_H
#define FLOW_H

#include "operand.h"
#include "sums.h"

#define CLASS_CATEGORIES (CATEGORIES / SYSTEMS)

// F[a, b], from e^x - 1 of a's and of b's exponent x. Nearby exponents make it a series in their
// difference, good to 1e-13 (as in mltree/program/ops/edges.py).
static inline acc divided(__global const acc *system, acc time, int a, int b, acc change_a,
                          acc change_b) {
  const acc apart = (system[a] - system[b]) * time;
  if (fabs(apart) >= FLOW_NEAR) return time * (change_a - change_b) / apart;
  return time * (change_b + 1) * (1 + apart / 2 * (1 + apart / 3 * (1 + apart / 4)));
}

// u and v of a lane's patterns in category k, u by the weight of k in each of their likelihoods.
VECTOR_FUNCTION void flow_sides(const plf_t *s, __global const int *record, int block, int k,
                                real_v u[HELD], real_v v[HELD]) {
  __global const real *model = model_row(s, record[FLOW_MODEL], block);
  __global const real *left = model + SYSTEM_AT(k) + MODEL_LEFT;
  real_v x[HELD], y[HELD];
  const code_v x_codes = operand_codes(s, record[FLOW_X], block);
  const code_v y_codes = operand_codes(s, record[FLOW_Y], block);
  const count_v count = operand_load(s, record[FLOW_X], x_codes, block, k, x) +
                        operand_load(s, record[FLOW_Y], y_codes, block, k, y);
  const size_t row = (size_t)record[FLOW_CASE] * s->blocks;
  const acc_v lnl = ((__global const acc_v *)s->site_lnl)[(row + block) * LANES + LANE];
  const acc_v weight = pattern_weights(s, record[FLOW_WEIGHTS], block);
  const acc_v inverse = exp(-(lnl + TO_ACC(count) * (acc)(SCALE_BITS * LN_2)));
  const acc_v share = weight > 0 ? weight * inverse : (acc_v)(0);
  matvec(left, x, u);
  matvec(left, y, v);
  const real_v own = TO_REAL(share) * model[MODEL_WEIGHTS + k];
  FOR_STATE(i) u[i] *= own;
}

static inline acc horizontal(real_v sum) {
#if WIDTH == 1
  return sum;
#else
  acc total = 0;
  for (int lane = 0; lane < WIDTH; ++lane) total += ((const real *)&sum)[lane];
  return total;
#endif
}

// The cells of classes that the model of these blocks does not have, and others do.
static inline void flow_clear(const plf_t *s, __global const int *record, int chunk) {
  const int own = max(0, SYSTEMS * SQUARE - record[FLOW_FIRST]);
  for (int q = own + ITEM; q < record[FLOW_CELLS]; q += GROUP_SIZE(ROWS))
    partial_add(s, record[FLOW_CELL] + q, chunk, true, 0);
}

// Adds to sum q of class m, if the record has a cell for it.
static inline void flow_add(const plf_t *s, __global const int *record, int m, int q, int chunk,
                            bool sets, acc value) {
  const int at = m * SQUARE + q - record[FLOW_FIRST];
  if (at >= 0 && at < record[FLOW_CELLS])
    partial_add(s, record[FLOW_CELL] + at, chunk, sets, value);
}

// The classes of a record: from the first with a cell on, to the one behind the last.
static inline int flow_begin(__global const int *record) {
  return record[FLOW_FIRST] / SQUARE;
}

static inline int flow_end(__global const int *record) {
  const int behind = record[FLOW_FIRST] + record[FLOW_CELLS];
  return min(SYSTEMS, (behind + SQUARE - 1) / SQUARE);
}

#if LANES == 1
// An edge over a tile of blocks. The first of a chunk sets its sums.
static inline void flow_edge(const plf_t *s, __global const int *record, bool sets, int chunk,
                             int first_block, int last_block, __local real_v *sides) {
  const int part = part_of(s, first_block);
  __global const acc *model = s->model + (size_t)(record[FLOW_MODEL] + part) * MODEL_WORDS;
  const acc length = LENGTHS_AT(s)[record[FLOW_LENGTH] + record[FLOW_STRIDE] * part];
  const int end = flow_end(record);
  for (int m = flow_begin(record); m < end; ++m) {
    __global const acc *system = model + m * SYSTEM_WORDS;
    acc total[SQUARE];
    for (int q = 0; q < SQUARE; ++q) total[q] = 0;
    for (int k = m * CLASS_CATEGORIES; k < (m + 1) * CLASS_CATEGORIES; ++k) {
      const acc time = length * model[MODEL_RATES + k];
      acc change[STATES];
      for (int a = 0; a < STATES; ++a) change[a] = expm1(system[a] * time);
      real_v sum[SQUARE];
      for (int q = 0; q < SQUARE; ++q) sum[q] = 0;
      for (int block = first_block; block < last_block; ++block) {
        real_v u[HELD], v[HELD];
        flow_sides(s, record, block, k, u, v);
        for (int a = 0; a < STATES; ++a)
          FOR_STATE(b) sum[a * STATES + b] += u[a] * v[b];
      }
      for (int a = 0; a < STATES; ++a)
        for (int b = 0; b < STATES; ++b)
          total[a * STATES + b] +=
              divided(system, time, a, b, change[a], change[b]) * horizontal(sum[a * STATES + b]);
    }
    for (int q = 0; q < SQUARE; ++q) flow_add(s, record, m, q, chunk, sets, total[q]);
  }
}
#else
// Lanes of one row leave what they see in local memory; then all work-items share out the sums.
static inline void flow_edge(const plf_t *s, __global const int *record, bool sets, int chunk,
                             int first_block, int last_block, __local real_v *sides) {
  const int part = part_of(s, first_block);
  __global const acc *model = s->model + (size_t)(record[FLOW_MODEL] + part) * MODEL_WORDS;
  const acc length = LENGTHS_AT(s)[record[FLOW_LENGTH] + record[FLOW_STRIDE] * part];
  const int begin = flow_begin(record) * CLASS_CATEGORIES;
  const int end = flow_end(record) * CLASS_CATEGORIES;
  for (int block = first_block; block < last_block; ++block)
    for (int k = begin; k < end; ++k) {
      if (ROW == 0 && CATEGORY_FIRST == 0) {
        real_v u[HELD], v[HELD];
        flow_sides(s, record, block, k, u, v);
        FOR_STATE(i)
          if (IS_STATE(i)) {
            sides[STATE(i) * LANES + LANE] = u[i];
            sides[(STATES + STATE(i)) * LANES + LANE] = v[i];
          }
      }
      sync_group(CLK_LOCAL_MEM_FENCE);
      __global const acc *system = model + SYSTEM_AT(k);
      const acc time = length * model[MODEL_RATES + k];
      const bool first = sets && block == first_block && k % CLASS_CATEGORIES == 0;
      for (int q = ITEM; q < SQUARE; q += GROUP_SIZE(ROWS)) {
        const int a = q / STATES, b = q % STATES;
        real_v sum = 0;
        for (int lane = 0; lane < LANES; ++lane)
          sum += sides[a * LANES + lane] * sides[(STATES + b) * LANES + lane];
        const acc by =
            divided(system, time, a, b, expm1(system[a] * time), expm1(system[b] * time));
        flow_add(s, record, k / CLASS_CATEGORIES, q, chunk, first, by * horizontal(sum));
      }
      sync_group(CLK_LOCAL_MEM_FENCE);
    }
}
#endif

// A run of edges over a tile of blocks, one after the other: all add to the same cells.
static inline void flow_run(const plf_t *s, __global const int *records, int count, int chunk,
                            int first_block, int last_block, __local real_v *sides) {
  const bool begins = first_block == chunk_begin(s, chunk);
  sync_group(CLK_GLOBAL_MEM_FENCE);  // lnL of the patterns, which the first category left
  if (begins) flow_clear(s, records, chunk);
  for (int n = 0; n < count; ++n)
    flow_edge(s, records + n * FLOW_WORDS, begins && n == 0, chunk, first_block, last_block, sides);
}

#endif
