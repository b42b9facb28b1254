// Eigen systems of symmetric matrices, series of rate matrices, and quantiles of gamma
// distributions, many at once. Every number is that of mltree/models/portable.py, eigen.py and
// rates.py to the bit: sums, products, quotients and roots in doubles, which IEEE 754 rounds in one
// way only, in the order that they have there.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

#ifndef ITEMS
#error "-DITEMS: work-items of a group that has a matrix"
#endif

#define ITEM ((int)get_local_id(0))
#define FOR_ITEMS(n, count) for (int n = ITEM; n < (count); n += ITEMS)
#if ITEMS > 1
#define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#else
#define SYNC
#endif

// A product that no compiler can join with a sum, whatever it makes of FP_CONTRACT. `zero` is 0.
static inline double times(double one, double other, long zero) {
  return as_double(as_long(one * other) ^ zero);
}

// Jacobi's method. In a round of the tournament every index meets one other; `players` is their
// number, made even by one who rests whomever he meets.
#define NEGLIGIBLE 0x1p-53
#define MAX_SWEEPS 30

static inline int player(int seat, int round, int players) {
  return seat == 0 ? 0 : 1 + (seat - 1 + (players - 1 - round)) % (players - 1);
}

typedef struct {
  int one, other;  // other: -1 where one rests
  double cos, sin;
} plane_t;

static inline void rotate(__local const plane_t *by, double *one, double *other, long zero) {
  const double x = *one, y = *other;
  *one = times(by->cos, x, zero) - times(by->sin, y, zero);
  *other = times(by->sin, x, zero) + times(by->cos, y, zero);
}

// matrices  f64 [n, S, S], which are lost; `work` as many, vectors as rows
// values    f64 [n, S], ascending; vectors f64 [n, S, S], a column each
__kernel void eigen_systems(__global double *matrices, __global double *work,
                            __global double *values, __global double *vectors, int states,
                            long zero, __local plane_t *planes, __local int *turned) {
  const size_t size = (size_t)states * states;
  __global double *a = matrices + get_group_id(0) * size, *u = work + get_group_id(0) * size;
  __global double *sorted = vectors + get_group_id(0) * size;
  const int pairs = (states + 1) / 2, rounds = 2 * pairs - 1;
  double largest = 0.0;
  for (int n = 0; n < (int)size; ++n) largest = fmax(largest, fabs(a[n]));
  const double negligible = NEGLIGIBLE * largest;
  FOR_ITEMS(n, (int)size) u[n] = n / states == n % states;
  for (int quiet = 0, n = 0; quiet < rounds && n < MAX_SWEEPS * rounds; ++n) {
    const int round = n % rounds;
    if (round == 0) quiet = 0;
    if (ITEM == 0) *turned = 0;
    SYNC;
    FOR_ITEMS(k, pairs) {
      const int x = player(k, round, 2 * pairs), y = player(2 * pairs - 1 - k, round, 2 * pairs);
      const int one = min(x, y), other = max(x, y) < states ? max(x, y) : -1;
      const double off = other < 0 ? 0.0 : a[one * states + other];
      double tangent = 0.0;
      if (fabs(off) > negligible) {
        const double p = a[one * states + one], q = a[other * states + other];
        const double cotangent = (q - p) / (2.0 * off) + 0.0;  // no zero below 0
        const double root = sqrt(times(cotangent, cotangent, zero) + 1.0);
        tangent = copysign(1.0, cotangent) / (fabs(cotangent) + root);
        *turned = 1;
      }
      const double cosine = 1.0 / sqrt(times(tangent, tangent, zero) + 1.0);
      const plane_t plane = {one, other, cosine, tangent * cosine};
      planes[k] = plane;
    }
    SYNC;
    const bool is_turned = *turned;
    quiet = is_turned ? 0 : quiet + 1;
    SYNC;
    if (!is_turned) continue;
    FOR_ITEMS(block, pairs * pairs) {
      __local const plane_t *row = planes + block / pairs, *column = planes + block % pairs;
      double b[2][2] = {{0.0, 0.0}, {0.0, 0.0}};
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
          const int x = i ? row->other : row->one, y = j ? column->other : column->one;
          if (x >= 0 && y >= 0) b[i][j] = a[x * states + y];
        }
      const double off = row->sin != 0.0 ? 0.0 : b[0][1];
      if (column->other >= 0)
        for (int i = 0; i < 2; ++i) rotate(column, &b[i][0], &b[i][1], zero);
      if (row->other >= 0)
        for (int j = 0; j < 2; ++j) rotate(row, &b[0][j], &b[1][j], zero);
      if (block / pairs == block % pairs) b[0][1] = b[1][0] = off;
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
          const int x = i ? row->other : row->one, y = j ? column->other : column->one;
          if (x >= 0 && y >= 0) a[x * states + y] = b[i][j];
        }
    }
    FOR_ITEMS(n, states * pairs) {
      __local const plane_t *plane = planes + n / states;
      if (plane->other < 0) continue;
      __global double *one = u + plane->one * states + n % states;
      __global double *other = u + plane->other * states + n % states;
      double x = *one, y = *other;
      rotate(plane, &x, &y, zero);
      *one = x;
      *other = y;
    }
    SYNC;
  }
  SYNC;
  FOR_ITEMS(n, states) {
    const double own = a[n * states + n];
    int rank = 0;
    for (int m = 0; m < states; ++m) {
      const double other = a[m * states + m];
      rank += other < own || (m < n && other == own);
    }
    values[get_group_id(0) * states + rank] = own;
    for (int i = 0; i < states; ++i) sorted[i * states + rank] = u[n * states + i];
  }
}

// Quantiles of the gamma distribution; mltree/models/rates.py has the formulae.
#define FARTHEST 746.0
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define LN2 0x1.62e42fefa39efp-1
#define CLOSE 1e-6
#define NOISE 0x1p-50
#define SMALLEST 0x1p-54
#define LEAST_DIVISOR 0.5

// e^x is 2^k (1 + rest).
typedef struct {
  double rest;
  int doublings;
} exponential_t;

static inline exponential_t exponential(double x, __global const double *factorials, long zero) {
  double r = fmin(fmax(x, -FARTHEST), FARTHEST);
  const double k = rint(r / LN2);
  r -= times(k, LN2_HIGH, zero);
  r -= times(k, LN2_LOW, zero);
  double total = times(r, factorials[13], zero);
  for (int n = 12; n > 0; --n) total = times(total + factorials[n], r, zero);
  const exponential_t of = {total, (int)k};
  return of;
}

static inline double exp_of(double x, __global const double *factorials, long zero) {
  const exponential_t e = exponential(x, factorials, zero);
  return ldexp(e.rest + 1.0, e.doublings);
}

static inline double expm1_of(double x, __global const double *factorials, long zero) {
  const exponential_t e = exponential(x, factorials, zero);
  return ldexp(e.rest, e.doublings) + (ldexp(1.0, e.doublings) - 1.0);
}

// Of numbers above 0.
static inline double log_of(double x, __global const double *odd, long zero) {
  int k;
  double share = frexp(x, &k);
  if (share < 0x1.6a09e667f3bcdp-1) {
    share *= 2.0;
    k -= 1;
  }
  const double ratio = (share - 1.0) / (share + 1.0), square = times(ratio, ratio, zero);
  double series = odd[10];
  for (int n = 9; n >= 0; --n) series = times(series, square, zero) + odd[n];
  const double near =
      times(times(ratio, square, zero), series, zero) + (2.0 * ratio + times(k, LN2_LOW, zero));
  return times(k, LN2_HIGH, zero) + near;
}

static inline double series_of(double a, double x, long zero) {
  double divisor = a + 1.0, term = x / divisor, total = term;
  for (int n = 2; term > SMALLEST * total; ++n) {
    divisor = a + n;
    term = times(term, x / divisor, zero);
    total += term;
  }
  return total;
}

// shapes, excesses f64 [n] and shares, their logarithms f64 [m]; ratios, below f64 [n, m]
__kernel void gamma_quantiles(__global const double *shapes, __global const double *excesses,
                              __global const double *shares, __global const double *logs,
                              __global const double *factorials, __global const double *odd,
                              __global double *ratios, __global double *below, int count,
                              int classes, long zero) {
  const int n = get_global_id(0);
  if (n >= count * classes) return;
  const double a = shapes[n / classes], target = logs[n % classes] + excesses[n / classes];
  double v = target / a - 1.0, step;
  do {
    const double total = 1.0 + series_of(a, times(a, exp_of(v, factorials, zero), zero), zero);
    const double rise = times(a, expm1_of(v, factorials, zero), zero);
    const double miss = target - (times(a, v, zero) - rise) - log_of(total, odd, zero);
    const double newton = times(miss, total, zero) / a;
    const double divisor = 1.0 - times(newton, a / total + rise, zero) / 2.0;
    step = newton / fmax(divisor, LEAST_DIVISOR);
    v += step;
  } while (fabs(step) > CLOSE + times(NOISE, fabs(v), zero));
  const double ratio = exp_of(v, factorials, zero);
  const double series = series_of(a, times(a, ratio, zero), zero);
  ratios[n] = ratio;
  below[n] = times(shares[n % classes], series / (1.0 + series), zero);
}

#include "uniformised.h"
