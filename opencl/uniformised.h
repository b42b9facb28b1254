// Series of rate matrices, many at once (opencl/series.h keeps them): powers of R = I + Q / q, how
// many of them P needs, and P of the reach, twice the reach ... until the eigen system is as good.
// mltree/models/eigen.py has the formulae, and the numbers, to the bit.
#ifndef UNIFORMISED_H
#define UNIFORMISED_H

#include "contract.h"

#define TERM_REACH 2.0
#define OMITTED 1e-12
#define QUIET 4
#define MOST_DOUBLINGS 32
#define ROWS_COMPARED 4
#define DIRECT 4e-11
#define ROUNDINGS 0x1p-51

// Whether any work-item has a reason.
static inline bool any_has(bool own, __local int *flag) {
  SYNC;
  if (ITEM == 0) *flag = 0;
  SYNC;
  if (own) *flag = 1;
  SYNC;
  return *flag;
}

// Entry (i, j) of f64 [S, m] x f64 [m, S], `scales` being factors of the first one's columns or 0.
static inline double entry_of(__global const double *a, __global const double *b,
                              __local const double *scales, int i, int j, int states, int m,
                              long zero, double *size) {
  double total = 0.0, of_sizes = 0.0;
  for (int k = 0; k < m; ++k) {
    double x = a[i * states + k];
    if (scales) x = times(x, scales[k], zero);
    const double term = times(x, b[k * states + j], zero);
    total = k ? total + term : term;
    of_sizes = k ? of_sizes + fabs(term) : fabs(term);
  }
  *size = of_sizes;
  return total;
}

// Whether I plus a product is P (`scales` given), or I less it a row of P, in the rows of P's least
// entries, which `least` holds.
static inline bool is_alike(__global const double *right, __global const double *left,
                            __local const double *scales, __local const double *least,
                            __global const double *p, int states, long zero, __local int *flag) {
  bool differs = false;
  FOR_ITEMS(n, states * states) {
    const int i = n / states, j = n % states;
    int rank = 0;
    for (int k = 0; k < states; ++k) rank += least[k] < least[i] || (k < i && least[k] == least[i]);
    if (rank >= ROWS_COMPARED) continue;
    double size;
    const int m = scales ? states : states - 1;
    const double found = entry_of(right, left, scales, i, j, states, m, zero, &size);
    const double whole = scales ? p[n] : p[j], one = i == j;
    const double exact = scales ? whole - one : one - whole;
    const double error = fabs(found - exact) + times(ROUNDINGS, size, zero);
    differs |= !(error + times(ROUNDINGS, one, zero) <= times(DIRECT, whole, zero));
  }
  return !any_has(differs, flag);
}

// Work-item's entries of the sum of `count` terms and of that of no change.
static inline void sum_terms(__global double *sum, __global const double *powers, size_t stride,
                             __global const double *weights, int count, int states, long zero) {
  FOR_ITEMS(n, states * states) {
    double total = n / states == n % states ? weights[0] : 0.0;
    for (int k = 0; k < count; ++k) total += times(weights[k + 1], powers[k * stride + n], zero);
    sum[n] = total;
  }
}

// One power after the other until the next ones add nothing; their number.
static inline int find_powers(__global const double *q, double rate, __global double *powers,
                              size_t stride, __global double *total, __global const double *weights,
                              int states, long zero, __local int *flag) {
  const int size = states * states;
  FOR_ITEMS(n, size) {
    powers[n] = fmax(q[n] / rate + (n / states == n % states ? 1.0 : 0.0), 0.0);
    total[n] = times(weights[1], powers[n], zero);
  }
  int count = 1;
  for (int quiet = 0; quiet < QUIET && count < MOST_TERMS; ++count) {
    SYNC;
    __global const double *before = powers + (count - 1) * stride;
    bool is_zero = false, adds = false;
    FOR_ITEMS(n, size) {
      const int i = n / states, j = n % states;
      double power = 0.0;
      for (int k = 0; k < states; ++k) {
        const double share = powers[i * states + k];
        if (share > 0.0) power += times(share, before[k * states + j], zero);
      }
      powers[count * stride + n] = power;
      const double term = times(weights[count + 1], power, zero);
      total[n] += term;
      is_zero |= !(total[n] > 0.0);
      adds |= !(term <= times(OMITTED / 8, total[n], zero));
    }
    const bool waits = any_has(is_zero, flag) && count + 1 < states;
    quiet = any_has(adds, flag) || waits ? 0 : quiet + 1;
  }
  return count;
}

// generators, right, left  f64 [n, S, S]; eigenvalues, frequencies f64 [n, S]
// weights                  f64 [SERIES_OCTAVES, MOST_TERMS + 1]
// heads                    f64 [n, SERIES_OCTAVES + 4]: rate, reach, until, counts, doublings
// powers, doublings        f64 [MOST_TERMS, n, S, S], f64 [MOST_DOUBLINGS, n, S, S]; work 2 x n
// local                    f64 [2 S], i32 [1]
__kernel void uniformised(__global const double *generators, __global const double *eigenvalues,
                          __global const double *right, __global const double *left,
                          __global const double *frequencies, __global const double *weights,
                          __global const double *factorials, __global double *heads,
                          __global double *powers, __global double *doublings,
                          __global double *work, int states, long zero, __local double *of_states,
                          __local int *flag) {
  const size_t size = (size_t)states * states, own = get_group_id(0) * size;
  const size_t stride = get_num_groups(0) * size;
  __global const double *q = generators + own, *pi = frequencies + get_group_id(0) * states;
  __global double *p = work + own, *other = p + stride;
  __global double *head = heads + get_group_id(0) * (SERIES_OCTAVES + 4);
  __local double *least = of_states, *scales = of_states + states;
  double rate = -q[0];
  for (int i = 1; i < states; ++i) rate = fmax(rate, -q[i * states + i]);
  const double reach = TERM_REACH / rate;
  powers += own, doublings += own, right += own, left += own;
  const int found = find_powers(q, rate, powers, stride, p, weights, states, zero, flag);
  int most = found;
  for (int octave = 0; octave < SERIES_OCTAVES; ++octave) {
    __global const double *of_octave = weights + octave * (MOST_TERMS + 1);
    sum_terms(p, powers, stride, of_octave, most, states, zero);
    FOR_ITEMS(n, (int)size) other[n] = 0.0;
    for (; most > 1; --most) {
      bool counts = false;
      FOR_ITEMS(n, (int)size) {
        other[n] += times(of_octave[most], powers[(most - 1) * stride + n], zero);
        counts |= other[n] > times(OMITTED, p[n], zero);
      }
      if (any_has(counts, flag)) break;
    }
    if (ITEM == 0) head[3 + octave] = most;
  }
  sum_terms(p, powers, stride, weights, found, states, zero);
  FOR_ITEMS(i, states) least[i] = pi[i];
  SYNC;
  const bool is_stationary = is_alike(right, left, 0, least, pi, states, zero, flag);
  double until = reach;
  int doubled = 0;
  for (; doubled < MOST_DOUBLINGS; ++doubled) {
    SYNC;
    FOR_ITEMS(i, states) {
      least[i] = p[i * states];
      for (int j = 1; j < states; ++j) least[i] = fmin(least[i], p[i * states + j]);
      const double time = times(eigenvalues[get_group_id(0) * states + i], until, zero);
      scales[i] = expm1_of(time, factorials, zero);
    }
    SYNC;
    if (is_stationary && is_alike(right, left, scales, least, p, states, zero, flag)) break;
    SYNC;
    double ignored;
    FOR_ITEMS(n, (int)size) {
      doublings[doubled * stride + n] = p[n];
      other[n] = entry_of(p, p, 0, n / states, n % states, states, states, zero, &ignored);
    }
    SYNC;
    FOR_ITEMS(i, states) {
      scales[i] = other[i * states];
      for (int j = 1; j < states; ++j) scales[i] += other[i * states + j];
    }
    SYNC;
    FOR_ITEMS(n, (int)size) p[n] = other[n] / scales[n / states];
    until *= 2.0;
  }
  if (ITEM == 0) {
    head[0] = rate;
    head[1] = reach;
    head[2] = until;
    head[3 + SERIES_OCTAVES] = doubled;
  }
}

#endif
