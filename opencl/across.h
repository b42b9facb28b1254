// A vector seen from across a branch, P[p] x, and what else is asked of a model's eigen system:
// that of a row, which all patterns share, or each pattern's own.
#ifndef ACROSS_H
#define ACROSS_H

#include "session.h"

#if SITE_SYSTEMS
#include "site_systems.h"
#else

#include "matvec.h"
#include "series.h"

typedef real frequency_t;

// pi_i of a model row's category.
#define FREQUENCY(s, model, block, k, i) ((model)[SYSTEM_AT(k) + MODEL_FREQUENCIES + READ_STATE(i)])

// y = P x
VECTOR_FUNCTION void across(const plf_t *s, int p, int block, int k, const real_v x[HELD],
                            real_v y[HELD]) {
  matvec(pmatrix_row(s, p, block, k), x, y);
}

// y = y * (P x), elementwise.
VECTOR_FUNCTION void across_times(const plf_t *s, int p, int block, int k, const real_v x[HELD],
                                  real_v y[HELD]) {
  matvec_times(pmatrix_row(s, p, block, k), x, y);
}

// sum_i (P x)_i (P y)_i z_i
VECTOR_FUNCTION real_v across_meeting(const plf_t *s, int p, int block, int k, const real_v x[HELD],
                                      const real_v y[HELD], const real_v z[HELD]) {
  return matvec_meeting(pmatrix_row(s, p, block, k), x, y, z);
}

// Tile t of y = Q x and of z = Q Q x.
VECTOR_FUNCTION void generator_times(const plf_t *s, __global const real *system, int block, int t,
                                     const real_v x[HELD], real_v y[TILE], real_v z[TILE]) {
  tile_times(system + MODEL_GENERATOR, t, x, y);
  tile_times(system + MODEL_GENERATOR_2, t, x, z);
}

// Share of the sizes of a sum's terms below which what is left of the sum is computed otherwise:
// they have cancelled each other.
#if SINGLE
#define CANCELLED 0x1p-10f
#else
#define CANCELLED 0x1p-14
#endif

// sums = sum_i pi_i x_i (P y)_i and its first two derivatives in t, by way of P and Q.
VECTOR_FUNCTION void edge_sums_exact(const plf_t *s, __global const real *model, int p, int block,
                                     int k, const real_v x[HELD], const real_v y[HELD],
                                     real_v sums[3]) {
  __global const real *generator = model + SYSTEM_AT(k) + MODEL_GENERATOR;
  const real rate = model[MODEL_RATES + k];
  real_v z[HELD], slopes[HELD], sum = 0, slope = 0, curve = 0;
  across(s, p, block, k, y, z);
  matvec(generator, z, slopes);
  FOR_STATE(i) {
    const real_v seen = FREQUENCY(s, model, block, k, i) * x[i];
    sum += seen * z[i];
    slope += seen * slopes[i];
  }
  matvec(generator, x, z);
  FOR_STATE(i) curve += FREQUENCY(s, model, block, k, i) * z[i] * slopes[i];
  sums[0] = sum;
  sums[1] = rate * slope;
  sums[2] = rate * rate * curve;
}

// The same by way of the eigen system; returns the size of the terms of the first sum.
VECTOR_FUNCTION real_v edge_sums(const plf_t *s, __global const real *model, int p, int block,
                                 int k, const real_v x[HELD], const real_v y[HELD],
                                 real_v sums[3]) {
  __global const real *system = model + SYSTEM_AT(k), *left = system + MODEL_LEFT;
  __global const real *expm1s = pmatrix_row(s, p, block, k) + SQUARE;
  real_v sum = 0, slope = 0, curve = 0;
  FOR_STATE(i) sum += FREQUENCY(s, model, block, k, i) * x[i] * y[i];
  const real rate = model[MODEL_RATES + k];
#if LANES > 1 && STATE_ITEMS == 1
#define MEETING(m) row_times(left, m, x) * row_times(left, m, y)
#else
  real_v met[HELD];
  matvec_met(left, x, y, met);
#define MEETING(m) met[m]
#endif
  real_v size = sum;
  FOR_STATE(m) {
    const real_v a = MEETING(m);
    const real lambda = rate * system[READ_STATE(m)], change = expm1s[READ_STATE(m)];
    sum += change * a;
    size += fabs(change * a);
    const real_v first = (lambda * (change + 1)) * a;
    slope += first;
    curve += lambda * first;
  }
  sums[0] = sum;
  sums[1] = slope;
  sums[2] = curve;
  return size;
}

#endif

#endif
