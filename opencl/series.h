// P as a sum whose terms have one sign, where the eigen system's would cancel each other: entries
// of short branches that take several changes (mltree/models/eigen.py).
//   P(t) = sum_n e^-theta theta^n / n! R^n,  theta = q t,  R = I + Q / q
// A series lies as
//   q | reach | until | N | terms[SERIES_OCTAVES] | R, R^2 ... R^N | P(reach), P(2 reach) ...
// A longer time than the reach is a rest and powers of two of the reach, multiplied with each
// other; from a time of `until` on the eigen system is as good.
#ifndef SERIES_H
#define SERIES_H

#include "session.h"
#if STATE_ITEMS > 1
#include "matrix_tiles.h"
#endif

#define SERIES_RATE 0
#define SERIES_REACH 1
#define SERIES_UNTIL 2
#define SERIES_POWERS 3
#define SERIES_TERMS 4
#define SERIES_TABLES (SERIES_TERMS + SERIES_OCTAVES)

// Where the series of a model's category begins; NO_SERIES where the eigen system is always used.
static inline int series_at(const plf_t *s, int model, int k) {
  return s->series_at[model * SYSTEMS + k / (CATEGORIES / SYSTEMS)];
}

// How a time is made up.
typedef struct {
  __global const acc *powers, *doublings;
  acc theta;
  int terms;
  uint whole;  // times the reach
} series_t;

// Whether P of the time is a sum of the series.
static inline bool series_of(const plf_t *s, int model, int k, acc time, series_t *sum) {
  const int at = series_at(s, model, k);
  if (at < 0) return false;
  __global const acc *series = s->series + at;
  if (!(time < series[SERIES_UNTIL])) return false;
  const acc reach = series[SERIES_REACH];
  sum->powers = series + SERIES_TABLES;
  sum->doublings = sum->powers + (int)series[SERIES_POWERS] * SQUARE;
  sum->whole = (uint)(time / reach);
  sum->theta = series[SERIES_RATE] * fmax(time - sum->whole * reach, (acc)0);
  int octave = 0;
  acc bound = series[SERIES_RATE] * reach / 2;
  for (; octave < SERIES_OCTAVES - 1 && sum->theta <= bound; bound /= 2) ++octave;
  sum->terms = series[SERIES_TERMS + octave];
  return true;
}

// The least entry that is not 0: products of three still are not.
#if SINGLE
#define LEAST_ENTRY 0x1p-72f
#else
#define LEAST_ENTRY 0x1p-240
#endif

static inline real series_entry(acc entry) {
  return entry > 0 ? (real)fmax(entry, (acc)LEAST_ENTRY) : 0;
}

#if STATE_ITEMS == 1
// Rows of P that a work-item sums, from row `first` on. The weights of the terms are found once.
static inline void series_rows(const series_t *sum, int first, int rows, acc out[][STATES]) {
  acc weights[MOST_TERMS + 1];
  weights[0] = exp(-sum->theta);
  for (int n = 0; n < sum->terms; ++n) weights[n + 1] = weights[n] * (sum->theta / (n + 1));
  for (int r = 0; r < rows; ++r) {
    const int i = first + r;
    for (int j = 0; j < STATES; ++j) out[r][j] = j == i ? weights[0] : 0;
    for (int n = 0; n < sum->terms; ++n) {
      __global const acc *power = sum->powers + n * SQUARE + i * STATES;
      for (int j = 0; j < STATES; ++j) out[r][j] += weights[n + 1] * power[j];
    }
    __global const acc *doubled = sum->doublings;
    for (uint whole = sum->whole; whole != 0; whole >>= 1, doubled += SQUARE) {
      if ((whole & 1) == 0) continue;
      acc longer[STATES];
      for (int j = 0; j < STATES; ++j) longer[j] = 0;
      for (int m = 0; m < STATES; ++m)
        for (int j = 0; j < STATES; ++j) longer[j] += out[r][m] * doubled[m * STATES + j];
      for (int j = 0; j < STATES; ++j) out[r][j] = longer[j];
    }
  }
}
#else
// Rows own[w] of P, of which a work-item holds its states: read as columns of R^n, whose entry
// (j, i) is that of (i, j) times pi_i / pi_j, so that neighbours read what lies side by side.
static inline void series_rows(const series_t *sum, __global const acc *frequencies,
                               const int own[WIDTH], real_v of_p[HELD]) {
  acc inverse[WIDTH], weight = exp(-sum->theta);
  int row[WIDTH];
  UNROLLED(w, WIDTH) {
    row[w] = min(own[w], STATES - 1);
    inverse[w] = 1 / frequencies[row[w]];
  }
  FOR_STATE(j)
    UNROLLED(w, WIDTH)((real *)(of_p + j))[w] = IS_STATE(j) && STATE(j) == row[w] ? weight : 0;
  for (int n = 0; n < sum->terms; ++n) {
    __global const acc *power = sum->powers + n * SQUARE;
    weight *= sum->theta / (n + 1);
    FOR_STATE(j)
      UNROLLED(w, WIDTH)((real *)(of_p + j))[w] +=
          IS_STATE(j) ? weight * power[STATE(j) * STATES + row[w]] *
                            (frequencies[READ_STATE(j)] * inverse[w])
                      : 0;
  }
  __global const acc *doubled = sum->doublings;
  for (uint whole = sum->whole; whole != 0; whole >>= 1, doubled += SQUARE) {
    if ((whole & 1) == 0) continue;
    real_v x[HELD];
    FOR_STATE(j) x[j] = of_p[j] / frequencies[READ_STATE(j)];
    FOR_TILE(t) {
      real_v y[TILE];
      tile_times(doubled, t, x, y);
      FOR_OF_TILE(t, r) {
        const int j = OF_TILE(t, r);
        of_p[j] = IS_STATE(j) ? y[r] * frequencies[READ_STATE(j)] : (real_v)(0);
      }
    }
  }
  FOR_STATE(j) UNROLLED(w, WIDTH)((real *)(of_p + j))[w] = series_entry(((real *)(of_p + j))[w]);
}
#endif

#endif
