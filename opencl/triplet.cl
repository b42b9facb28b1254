// The three branches around an insertion point, jointly. With A = P(t_1) proximal, B = P(t_2)
// distal, C = P(t_3) pendant and A' = r Q A, A'' = r^2 Q Q A:
//   L = sum_k w_k sum_i pi_i A_i B_i C_i,  L_1 = ... A'_i B_i C_i,  L_12 = ... A'_i B'_i C_i, ...
// gives lnL, its gradient and its whole Hessian in one pass over the patterns.
#define TERMS TRIPLET_CELLS
#define TAKES_SPANS
#define MOST_SPANS 8    // of a record that a work-group takes together: they read the same matrices
#define JOBS_A_GROUP 8  // at least, before it takes several: enough for even shares

#include "contract.h"
#include "grid.h"
#include "operand.h"
#include "span.h"
#include "sums.h"

#define OWN_OP OP_TRIPLET
#define WORKER_ROWS 1
#define LOCAL_TERMS (TERMS * SHARES * COLUMNS)
#define LOCAL_LANES (TERMS * COLUMNS)
#define LOCAL_CELLS 1

// What state i adds to the sums; a, b, c: the three vectors there with their two derivatives.
VECTOR_FUNCTION void triplet_add(frequency_t pi, const real_v a[3], const real_v b[3],
                                 const real_v c[3], real_v sum[TERMS]) {
  const real_v c0 = pi * c[0], c1 = pi * c[1], c2 = pi * c[2];
  const real_v ab = a[0] * b[0], da_b = a[1] * b[0], a_db = a[0] * b[1];
  sum[0] += ab * c0;
  sum[1] += da_b * c0;
  sum[2] += a_db * c0;
  sum[3] += ab * c1;
  sum[4] += a[2] * (b[0] * c0);
  sum[5] += b[2] * (a[0] * c0);
  sum[6] += ab * c2;
  sum[7] += a[1] * (b[1] * c0);
  sum[8] += da_b * c1;
  sum[9] += a_db * c1;
}

// All states' share, from the vectors alone. Rows of Q and Q Q are read once for all three.
VECTOR_FUNCTION void triplet_sums(const plf_t *s, __global const real *model, int block, int k,
                                  const real_v a[HELD], const real_v b[HELD], const real_v c[HELD],
                                  real_v sum[TERMS]) {
  __global const real *system = model + SYSTEM_AT(k);
  const real rate = model[MODEL_RATES + k];
  for (int t = 0; t < TERMS; ++t) sum[t] = 0;
  FOR_TILE(t) {
    real_v qa[TILE], qqa[TILE], qb[TILE], qqb[TILE], qc[TILE], qqc[TILE];
    generator_times(s, system, block, t, a, qa, qqa);
    generator_times(s, system, block, t, b, qb, qqb);
    generator_times(s, system, block, t, c, qc, qqc);
#define ORDERS(x) {x[i], rate * JOIN(q, x)[r], (rate * rate) * JOIN(qq, x)[r]}
    FOR_OF_TILE(t, r) {
      const int i = OF_TILE(t, r);
      const real_v of_a[3] = ORDERS(a), of_b[3] = ORDERS(b), of_c[3] = ORDERS(c);
      triplet_add(FREQUENCY(s, model, block, k, i), of_a, of_b, of_c, sum);
    }
  }
}

VECTOR_FUNCTION void triplet_terms(const plf_t *s, __global const int *record, int block, int k,
                                   __local real_v *terms, __local count_v *counts) {
  __global const real *model = model_row(s, record[TRIPLET_MODEL], block);
  real_v a[HELD], b[HELD], c[HELD], sum[TERMS];
  const count_v count =
      propagate(s, record[TRIPLET_PROXIMAL], record[TRIPLET_PROXIMAL_P], block, k, a) +
      propagate(s, record[TRIPLET_DISTAL], record[TRIPLET_DISTAL_P], block, k, b) +
      propagate(s, record[TRIPLET_PENDANT], record[TRIPLET_PENDANT_P], block, k, c);
  leave_count(counts, 0, k, COLUMN, count);
  triplet_sums(s, model, block, k, a, b, c, sum);
  for (int t = 0; t < TERMS; ++t) sum[t] *= model[MODEL_WEIGHTS + k];
  leave_terms(terms, counts, 0, k, COLUMN, sum, count);
}

// Adds one lane's lnL, gradient and Hessian; the scaling cancels in the ratios.
VECTOR_FUNCTION void triplet_lane(const plf_t *s, int weights, int block,
                                  __local const real_v *terms, __local const count_v *counts,
                                  acc_v sums[TERMS]) {
  acc_v all[TERMS];
  const count_v count = sum_categories(terms, counts, 0, COLUMN, all);
  const acc_v weight = pattern_weights(s, weights, block);
  const int one[6] = {1, 2, 3, 1, 1, 2}, other[6] = {1, 2, 3, 2, 3, 3};
  sums[0] += weight * scaled_log(all[0], count);
  const acc_v inverse = 1 / all[0];
  for (int t = 1; t < TERMS; ++t) all[t] *= inverse;
  for (int t = 1; t < 4; ++t) sums[t] += weight * all[t];
  for (int h = 0; h < 6; ++h) sums[4 + h] += weight * (all[4 + h] - all[one[h]] * all[other[h]]);
}

static inline void triplet_span(const plf_t *s, __global const int *record, chunks_t of, int span,
                                __local real_v *terms, __local count_v *counts,
                                __local acc_v *lanes) {
  acc_v sums[TERMS];
  for (int t = 0; t < TERMS; ++t) sums[t] = 0;
  for (int n = 0, blocks = span_blocks(s, of, span); n < blocks; ++n) {
    const int block = column_block(s, of, span, n);
    FOR_CATEGORY(k) triplet_terms(s, record, block, k, terms, counts);
    sync_group(CLK_LOCAL_MEM_FENCE);
    if (SUMS_UP && column_has_block(s, of, span, n))
      triplet_lane(s, record[TRIPLET_WEIGHTS], block, terms, counts, sums);
    sync_group(CLK_LOCAL_MEM_FENCE);
  }
  if (SUMS_UP)
    for (int t = 0; t < TERMS; ++t) lanes[t * COLUMNS + COLUMN] = sums[t];
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int q = ITEM; q < TERMS * SPAN; q += TEAM)
    if (span_chunk(of, span, q % SPAN) < of.end)
      partial_add(s, record[TRIPLET_CELL] + q / SPAN, span_chunk(of, span, q % SPAN), true,
                  lanes_sum((__local const acc *)lanes + q * VW));
  sync_group(CLK_LOCAL_MEM_FENCE);
}

static inline void own_stage(const plf_t *s, __global const int *records, int count, int aux,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const long spans = span_count(s), groups = GROUPS;
  const long stride = clamp(count * spans / (groups * JOBS_A_GROUP), 1L, (long)MOST_SPANS);
  const long strides = (spans + stride - 1) / stride;
  for (long job = GROUP; job < count * strides; job += groups) {
    const int n = job / strides, first = job % strides * stride;
    __global const int *record = records + n * TRIPLET_WORDS;
    if (is_settled(s, record[TRIPLET_GROUP])) continue;
    const chunks_t of = case_chunks(s, record[TRIPLET_CASE]);
    for (int span = first; span < min(first + stride, spans) && has_span(of, span); ++span)
      triplet_span(s, record, of, span, terms, counts, lanes);
  }
  mark(book, since, FN_TRIPLET);
}

#include "worker.h"
