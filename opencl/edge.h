// evaluate, and sumGAMMA fused with coreDerivative, at one edge (x, y) of length t:
//   L   = sum_k w_k sum_i pi_i x_i (P(r_k t) y)_i
//       = sum_k w_k (sum_i pi_i x_i y_i + sum_m a_m expm1(lambda_m r_k t))
//   a_m = (sum_i pi_i x_i V_im) (sum_j V^-1_mj y_j)                      (sumGAMMA)
//       = (V^-1 x)_m (V^-1 y)_m, as diag(pi) V is the transpose of V^-1 (mltree/models/eigen.py)
//   L', L'' follow from d/dt expm1(lambda r t) = lambda r (expm1 + 1)    (coreDerivative)
#ifndef EDGE_H
#define EDGE_H

#define TERMS 3  // L, L', L''

#include "operand.h"
#include "series.h"
#include "sums.h"

// Category k's share of the likelihood.
VECTOR_FUNCTION void evaluate_terms(const plf_t *s, __global const int *record, int block, int k,
                                    __local real_v *terms, __local count_v *counts) {
  __global const real *model = model_row(s, record[EDGE_MODEL], block);
  real_v x[HELD], y[HELD];
  const code_v codes = operand_codes(s, record[EDGE_X], block);
  const count_v count = operand_load(s, record[EDGE_X], codes, block, k, x) +
                        propagate(s, record[EDGE_Y], record[EDGE_P], block, k, y);
  leave_count(counts, ROW, k, LANE, count);
  real_v sum = 0;
  FOR_STATE(i) sum += FREQUENCY(s, model, block, k, i) * x[i] * y[i];
  const real_v own[TERMS] = {model[MODEL_WEIGHTS + k] * sum, 0, 0};
  leave_terms(terms, counts, ROW, k, LANE, own, count);
}

// Patterns are lost where their terms by the eigen system cancel each other, as they do where the
// ends of a short branch differ by several changes (series.h). They are summed by way of P and Q
// once more, from their operands on, so that no register holds those meanwhile: at once, by a GPU
// in a call; or in a second pass where quads hold many states, whose registers no call may cost.
#define MENDS_AT_ONCE (STATE_ITEMS == 1 && !SITE_SYSTEMS)

#if MENDS_AT_ONCE
#if LANES > 1
__attribute__((noinline))
#endif
VECTOR_FUNCTION void derive_exact(const plf_t *s, __global const int *record, int block, int k,
                                  real_v sums[TERMS]) {
  real_v x[HELD], y[HELD];
  operand_load(s, record[EDGE_X], operand_codes(s, record[EDGE_X], block), block, k, x);
  operand_load(s, record[EDGE_Y], operand_codes(s, record[EDGE_Y], block), block, k, y);
  __global const real *model = model_row(s, record[EDGE_MODEL], block);
  edge_sums_exact(s, model, record[EDGE_P], block, k, x, y, sums);
}
#endif

// Category k's share of the likelihood and of its first two derivatives in t. Returns whether
// patterns are lost, and mends them at once or if EXACT says so, a constant.
VECTOR_FUNCTION bool derive_terms(const plf_t *s, __global const int *record, int block, int k,
                                  bool exact, __local real_v *terms, __local count_v *counts) {
  __global const real *model = model_row(s, record[EDGE_MODEL], block);
  real_v x[HELD], y[HELD];
  const code_v x_codes = operand_codes(s, record[EDGE_X], block);
  const code_v y_codes = operand_codes(s, record[EDGE_Y], block);
  const count_v count = operand_load(s, record[EDGE_X], x_codes, block, k, x) +
                        operand_load(s, record[EDGE_Y], y_codes, block, k, y);
  leave_count(counts, ROW, k, LANE, count);
  real_v own[TERMS];
  const real_v size = edge_sums(s, model, record[EDGE_P], block, k, x, y, own);
  bool lost = false;
#if !SITE_SYSTEMS
  if (series_at(s, record[EDGE_MODEL] + part_of(s, block), k) != NO_SERIES) {
#if STATE_ITEMS > 1
    const real_v total = quad_sum(own[0]), least = quad_sum(size) * CANCELLED;
#else
    const real_v total = own[0], least = size * CANCELLED;
#endif
    lost = ANY(!(total > least));
    if (MENDS_AT_ONCE ? lost : exact) {
      real_v sums[TERMS];
#if MENDS_AT_ONCE && LANES > 1
      const plf_t copy = *s;  // the session of a call lies in memory
      derive_exact(&copy, record, block, k, sums);
#elif MENDS_AT_ONCE
      derive_exact(s, record, block, k, sums);
#else
      edge_sums_exact(s, model, record[EDGE_P], block, k, x, y, sums);
#endif
      UNROLLED(t, TERMS) own[t] = total > least ? own[t] : sums[t];
    }
  }
#endif
  for (int t = 0; t < TERMS; ++t) own[t] *= model[MODEL_WEIGHTS + k];
  leave_terms(terms, counts, ROW, k, LANE, own, count);
  return lost;
}

// The same for all categories of a work-item, in one pass or two.
VECTOR_FUNCTION void derive_categories(const plf_t *s, __global const int *record, int block,
                                       __local real_v *terms, __local count_v *counts) {
  bool lost = false;
  FOR_CATEGORY(k) lost |= derive_terms(s, record, block, k, false, terms, counts);
#if STATE_ITEMS > 1
  int of_warp = lost;
  UNROLLED(n, 5) of_warp |= item_apart(of_warp, 1 << n);  // a warp multiplies together
  if (!of_warp) return;
  mem_fence(CLK_LOCAL_MEM_FENCE);
  FOR_CATEGORY(k) derive_terms(s, record, block, k, true, terms, counts);
#endif
}

// Adds one lane's lnL.
VECTOR_FUNCTION void evaluate_lane(const plf_t *s, __global const int *record, int block, int kind,
                                   __local const real_v *terms, __local const count_v *counts,
                                   acc_v sums[2]) {
  acc_v all[TERMS];
  const count_v count = sum_categories(terms, counts, ROW, LANE, all);
  const acc_v lnl = scaled_log(all[0], count);
  if (kind == DO_EVALUATE_SITES) site_lnl_store(s, record[EDGE_CASE], block, lnl);
  sums[0] += pattern_weights(s, record[EDGE_WEIGHTS], block) * lnl;
}

// Adds one lane's dlnL/dt and d2lnL/dt2; the scaling cancels in L'/L.
VECTOR_FUNCTION void derive_lane(const plf_t *s, __global const int *record, int block,
                                 __local const real_v *terms, __local const count_v *counts,
                                 acc_v sums[2]) {
  acc_v all[TERMS];
  sum_categories(terms, counts, ROW, LANE, all);
  const acc_v inverse = 1 / all[0], slope = all[1] * inverse;
  const acc_v weight = pattern_weights(s, record[EDGE_WEIGHTS], block);
  sums[0] += weight * slope;
  sums[1] += weight * (all[2] * inverse - slope * slope);
}

// One run of edges over a tile of blocks; rows take edges side by side. A chunk's sum grows block
// by block, so that its bits do not depend on the tiles.
static inline void edges_run(const plf_t *s, __global const int *records, int count, int kind,
                             int chunk, int first_block, int last_block, __local real_v *terms,
                             __local count_v *counts, __local acc_v *lanes) {
  const int cells = kind == DO_DERIVE ? 2 : 1;
  for (int base = 0; base < count; base += ROWS) {
    const int row = ROW;
    const bool active = base + row < count;
    __global const int *record = records + (base + row) * EDGE_WORDS;
    for (int block = first_block; block < last_block; ++block) {
      if (active) {
        if (kind == DO_DERIVE)
          derive_categories(s, record, block, terms, counts);
        else
          FOR_CATEGORY(k) evaluate_terms(s, record, block, k, terms, counts);
      }
      sync_group(CLK_LOCAL_MEM_FENCE);
      if (SUMS_UP) {
        acc_v sums[2] = {0, 0};
        if (active && kind == DO_DERIVE)
          derive_lane(s, record, block, terms, counts, sums);
        else if (active)
          evaluate_lane(s, record, block, kind, terms, counts, sums);
        for (int t = 0; t < cells; ++t) lanes[(row * 2 + t) * LANES + LANE] = sums[t];
      }
      sync_group(CLK_LOCAL_MEM_FENCE);
      for (int q = ITEM; q < ROWS * 2; q += GROUP_SIZE(ROWS)) {
        const int edge = base + q / 2, t = q % 2;
        if (edge < count && t < cells)
          partial_add(s, records[edge * EDGE_WORDS + EDGE_CELL] + t, chunk,
                      block == chunk_begin(s, chunk),
                      lanes_sum((__local const acc *)lanes + q * VW));
      }
      sync_group(CLK_LOCAL_MEM_FENCE);
    }
  }
}

#endif
