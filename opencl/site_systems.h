// Patterns that have an eigen system each (PMSF): Q = diag(1/s) U diag(lambda) U^T diag(s), with
// s = sqrt(pi) and U orthonormal. P is applied, not made:
//   P x = x + diag(1/s) U expm1(lambda r t) U^T diag(s) x
// which takes twice the multiplications of P x, and not S^3 a pattern, branch and category.
#ifndef SITE_SYSTEMS_H
#define SITE_SYSTEMS_H

#include "session.h"

// Entries of short branches that take several changes are smaller than what that leaves of larger
// ones, and come from a sum without differences, whose terms are found from
//   Q_ij = r_ij pi_j / speed
// What a pattern has: lambda[S] | s[S] | (1/s)[S] | U[S][S] | 1/speed; r[S][S] is that of all.
#define SITE_ROOTS STATES
#define SITE_INVERSE (SITE_ROOTS + STATES)
#define SITE_VECTORS (SITE_INVERSE + STATES)
#define SITE_SPEED (SITE_VECTORS + SQUARE)
#define SITE_WORDS (SITE_SPEED + 1)

typedef real_v frequency_t;

#define TILE STATES  // of what generator_times makes together

// Long enough to be called. Inlined into a walk or a scan it crashes the compiler of PoCL 3, and
// NVIDIA's (driver 580) made scans of up to 4 states that scored insertions wrong.
#define SITE_CALL static __attribute__((noinline))

// Share of the sizes of a sum's terms below which they have cancelled each other.
#if SINGLE
#define SITE_CANCELLED 0x1p-10f
#else
#define SITE_CANCELLED 0x1p-26
#endif

// A lane's number of a block's patterns.
#define SITE_WORD(s, block, n) \
  (((__global const real_v *)(s)->site_system)[((size_t)(block) * SITE_WORDS + (n)) * LANES + LANE])

VECTOR_FUNCTION real_v site_frequency(const plf_t *s, int block, int i) {
  const real_v root = SITE_WORD(s, block, SITE_ROOTS + i);
  return root * root;
}
#define FREQUENCY(s, model, block, k, i) site_frequency(s, block, i)

// expm1(r) / r for |r| <= ln 2 / 2, from 1/8! or 1/14! down to 1/1!.
#define FEW_TERMS(add) add(5040) add(720) add(120) add(24) add(6) add(2) add(1)
#define MANY_TERMS(add) \
  add(6227020800.0) add(479001600) add(39916800) add(3628800) add(362880) add(40320) FEW_TERMS(add)

#if SINGLE
#define EXPM1_LEAST_TERM (1.0f / 40320)
#define EXPM1_TERMS FEW_TERMS
#define MANTISSA_BITS 23
#define ROUNDING 0x1.8p23f
#define ONE_EXPONENT 127
#define LEAST_EXPONENT -80
#define LN_2_HIGH 0x1.62e4p-1f
#define LN_2_LOW 0x1.7f7d1cp-20f
typedef VECTOR(int) bits_v;
#if WIDTH > 1
#define AS_BITS(x) JOIN(as_int, WIDTH)(x)
#define AS_REAL(x) JOIN(as_float, WIDTH)(x)
#else
#define AS_BITS(x) as_int(x)
#define AS_REAL(x) as_float(x)
#endif
#else
#define EXPM1_LEAST_TERM (1.0 / 87178291200.0)
#define EXPM1_TERMS MANY_TERMS
#define MANTISSA_BITS 52
#define ROUNDING 0x1.8p52
#define ONE_EXPONENT 1023
#define LEAST_EXPONENT -700
#define LN_2_HIGH 0x1.62e42fefa38p-1
#define LN_2_LOW 0x1.ef35793c7673p-45
typedef VECTOR(long) bits_v;
#if WIDTH > 1
#define AS_BITS(x) JOIN(as_long, WIDTH)(x)
#define AS_REAL(x) JOIN(as_double, WIDTH)(x)
#else
#define AS_BITS(x) as_long(x)
#define AS_REAL(x) as_double(x)
#endif
#endif

// e^x - 1 of x <= 0, without the call for every lane that runtimes make of expm1. With
// x = n ln 2 + r it is 2^n expm1(r) + (2^n - 1): adding ROUNDING leaves n in the lowest bits.
VECTOR_FUNCTION real_v site_expm1(real_v exponent) {
  const real_v x = exponent > LEAST_EXPONENT ? exponent : (real_v)(LEAST_EXPONENT);
  const real_v rounded = x * (real)(1 / LN_2) + ROUNDING;
  const real_v n = rounded - ROUNDING;
  const real_v r = (x - n * (real)LN_2_HIGH) - n * (real)LN_2_LOW;
  real_v series = EXPM1_LEAST_TERM;
#define ADD_TERM(factorial) series = series * r + (real)(1.0 / factorial);
  EXPM1_TERMS(ADD_TERM)
  const real_v power = AS_REAL((AS_BITS(rounded) + ONE_EXPONENT) << MANTISSA_BITS);
  return power * (series * r) + (power - 1);
}

// z = U^T diag(s) x
VECTOR_FUNCTION void site_project(const plf_t *s, int block, const real_v x[STATES],
                                  real_v z[STATES]) {
  real_v rooted[STATES];
  FOR_STATE(i) rooted[i] = SITE_WORD(s, block, SITE_ROOTS + i) * x[i];
  for (int next = 0; next < STATES; next += SUMS) {
    const int m = min(next, STATES - SUMS);
    real_v sum[SUMS];
    FOR_SUM(r) sum[r] = 0;
    FOR_TERM(i) FOR_SUM(r)
    sum[r] += SITE_WORD(s, block, SITE_VECTORS + i * STATES + m + r) * rooted[i];
    FOR_SUM(r) z[m + r] = sum[r];
  }
}

// y = diag(1/s) U z
VECTOR_FUNCTION void site_restore(const plf_t *s, int block, const real_v z[STATES],
                                  real_v y[STATES]) {
  for (int next = 0; next < STATES; next += SUMS) {
    const int i = min(next, STATES - SUMS);
    real_v sum[SUMS];
    FOR_SUM(r) sum[r] = 0;
    FOR_TERM(m) FOR_SUM(r)
    sum[r] += SITE_WORD(s, block, SITE_VECTORS + (i + r) * STATES + m) * z[m];
    FOR_SUM(r) y[i + r] = SITE_WORD(s, block, SITE_INVERSE + i + r) * sum[r];
  }
}

// What comes into every state in Q x; and Q_ii = -leaving[i].
VECTOR_FUNCTION void site_changes(const plf_t *s, int block, const real_v x[STATES],
                                  real_v coming[STATES], real_v leaving[STATES]) {
  const real_v speed = SITE_WORD(s, block, SITE_SPEED);
  real_v pi[STATES], part[STATES];
  FOR_STATE(i) {
    pi[i] = site_frequency(s, block, i) * speed;
    part[i] = pi[i] * x[i];
    coming[i] = leaving[i] = 0;
  }
  for (int i = 0; i < STATES; ++i) {
    FOR_TERM(j) {
      const real rate = s->series[i * STATES + j];
      coming[i] += rate * part[j];
      leaving[i] += rate * pi[j];
    }
  }
}

// y = Q x
VECTOR_FUNCTION void site_flow(const plf_t *s, int block, const real_v x[STATES],
                               real_v y[STATES]) {
  real_v leaving[STATES];
  site_changes(s, block, x, y, leaving);
  FOR_STATE(i) y[i] -= leaving[i] * x[i];
}

// What a term of the sum may still add; changes a step of it; and steps, above which nothing is
// lost by way of the eigen system.
#define SITE_OMITTED (SINGLE ? 1e-7f : 1e-13)
#define SITE_REACH 2
#define SITE_STEPS 64
#define SITE_TERMS (STATES + 40)

// y = P x = sum_n e^-theta theta^n / n! (I + Q / q)^n x,  theta = q t, in steps of short times.
SITE_CALL bool site_series(const plf_t *s, int block, real time, const real_v x[STATES],
                           real_v y[STATES]) {
  real_v v[STATES], coming[STATES], leaving[STATES], q = 0;
  site_changes(s, block, x, coming, leaving);
  FOR_STATE(i) q = leaving[i] > q ? leaving[i] : q;
  int steps = 1;
  while (steps <= SITE_STEPS && ANY(q * time > (real_v)(SITE_REACH * steps))) steps *= 2;
  if (steps > SITE_STEPS) return false;
  const real_v theta = q * (time / steps), each = 1 / q;
  FOR_STATE(i) y[i] = x[i];
  for (int step = 0; step < steps; ++step) {
    real_v weight = exp(-theta);
    FOR_STATE(i) {
      v[i] = y[i];
      y[i] *= weight;
    }
    for (int n = 1, quiet = 0; n < SITE_TERMS && quiet < 2; ++n) {
      weight *= theta / n;
      site_changes(s, block, v, coming, leaving);
      int more = 0;
      for (int i = 0; i < STATES; ++i) {
        v[i] = v[i] * (1 - leaving[i] * each) + coming[i] * each;
        more |= ANY(!(weight * v[i] < (real)SITE_OMITTED * y[i]));
        y[i] += weight * v[i];
      }
      quiet = more ? 0 : quiet + 1;
    }
  }
  return true;
}

// y = P x
SITE_CALL void across(const plf_t *s, int p, int block, int k, const real_v x[STATES],
                      real_v y[STATES]) {
  const real time = pmatrix_row(s, p, block, k)[0];
  real_v z[STATES];
  site_project(s, block, x, z);
  real_v square = 0;
  FOR_STATE(m) {
    z[m] *= site_expm1(SITE_WORD(s, block, m) * time);
    square += z[m] * z[m];
  }
  site_restore(s, block, z, y);
  const real_v size = sqrt(square);  // a row of U is as long as 1
  bits_v lost = 0;
  FOR_STATE(i) {
    const real_v sum = x[i] + y[i];
    lost |= sum < (x[i] + SITE_WORD(s, block, SITE_INVERSE + i) * size) * (real)SITE_CANCELLED;
    y[i] = sum > 0 ? sum : (real_v)(0);
  }
  if (time > 0 && ANY(lost != 0) && site_series(s, block, time, x, z))
    FOR_STATE(i) y[i] = lost != 0 ? z[i] : y[i];
}

// y = y * (P x), elementwise.
VECTOR_FUNCTION void across_times(const plf_t *s, int p, int block, int k, const real_v x[STATES],
                                  real_v y[STATES]) {
  real_v seen[STATES];
  across(s, p, block, k, x, seen);
  FOR_STATE(i) y[i] *= seen[i];
}

// sum_i (P x)_i (P y)_i z_i
VECTOR_FUNCTION real_v across_meeting(const plf_t *s, int p, int block, int k,
                                      const real_v x[STATES], const real_v y[STATES],
                                      const real_v z[STATES]) {
  real_v one[STATES], other[STATES], sum = 0;
  across(s, p, block, k, x, one);
  across(s, p, block, k, y, other);
  FOR_STATE(i) sum += one[i] * (other[i] * z[i]);
  return sum;
}

// y = Q x, z = Q Q x
VECTOR_FUNCTION void generator_times(const plf_t *s, __global const real *system, int block, int t,
                                     const real_v x[STATES], real_v y[STATES], real_v z[STATES]) {
  site_flow(s, block, x, y);
  site_flow(s, block, y, z);
}

// sums = sum_i pi_i x_i (P y)_i and its first two derivatives in t.
VECTOR_FUNCTION real_v edge_sums(const plf_t *s, __global const real *model, int p, int block,
                                 int k, const real_v x[STATES], const real_v y[STATES],
                                 real_v sums[3]) {
  const real time = pmatrix_row(s, p, block, k)[0], rate = model[MODEL_RATES + k];
  real_v left[STATES], right[STATES], sum = 0, slope = 0, curve = 0;
  site_project(s, block, x, left);
  site_project(s, block, y, right);
  FOR_STATE(i) sum += site_frequency(s, block, i) * x[i] * y[i];
  real_v size = sum;
  FOR_STATE(m) {
    const real_v eigenvalue = SITE_WORD(s, block, m), lambda = eigenvalue * rate;
    const real_v change = site_expm1(eigenvalue * time), a = left[m] * right[m];
    const real_v first = (lambda * (change + 1)) * a;
    sum += change * a;
    size += fabs(change * a);
    slope += first;
    curve += lambda * first;
  }
  sums[0] = sum;
  sums[1] = slope;
  sums[2] = curve;
  const bits_v lost = !(sum > size * (real)SITE_CANCELLED);
  if (time > 0 && ANY(lost != 0)) {
    real_v exact[3] = {0, 0, 0};
    across(s, p, block, k, y, right);
    site_flow(s, block, right, left);
    FOR_STATE(i) {
      const real_v seen = site_frequency(s, block, i) * x[i];
      exact[0] += seen * right[i];
      exact[1] += rate * seen * left[i];
    }
    site_flow(s, block, x, right);
    FOR_STATE(i) exact[2] += rate * rate * (site_frequency(s, block, i) * right[i] * left[i]);
    UNROLLED(t, 3) sums[t] = lost != 0 ? exact[t] : sums[t];
  }
  return size;
}

#endif
