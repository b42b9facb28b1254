// P matrices from branch lengths: P = I + V expm1(lambda r t) V^-1, which keeps the relative
// precision of the entries of short branches that a single change makes, or the sum of a series,
// which keeps that of all (series.h).
#ifndef PMATRICES_H
#define PMATRICES_H

#include "grid.h"
#include "series.h"
#if STATE_ITEMS > 1
#include "matrix_tiles.h"
#endif

// Rows of a P matrix that are made together: on CPUs all, from the same exponentials, on GPUs one
// by a work-item, or by a warp as many as it has lanes and patterns of them.
#if STATE_ITEMS > 1
#define MATRIX_ROWS (WARP_LANES * WIDTH)
#define MATRIX_ITEMS WARP
#else
#define MATRIX_ROWS (LANES == 1 ? STATES : 1)
#define MATRIX_ITEMS 1
#endif

// Columns of a row that are summed side by side, on CPUs in registers.
#if LANES == 1 && (STATES >= 20 || STATES == 4) && FP64
#define COLUMNS_MADE (STATES == 4 ? 4 : 20)
typedef double4 acc_piece __attribute__((aligned(8)));
#define FOR_PIECE(n) UNROLLED(n, COLUMNS_MADE / 4)
#else
#define COLUMNS_MADE STATES
typedef acc acc_piece;
#define FOR_PIECE(n) ROLLED(n, STATES)
#endif

// Exponentials that a CPU takes side by side: a lone one costs as much as all of them (DNA, an AVX2
// core: a branch's four matrices 0.63 -> 0.19 us).
#if STATES >= 4
#define EXPONENTIALS_MADE 4
#else
#define EXPONENTIALS_MADE 2
#endif
#if FP64
typedef JOIN(double, EXPONENTIALS_MADE) exponentials_t;
#else
typedef JOIN(float, EXPONENTIALS_MADE) exponentials_t;
#endif

// Row i of P by the eigen system.
static inline void matrix_row(__global const acc *system, const acc exponentials[STATES], int i,
                              acc out[STATES]) {
  for (int next = 0; next < STATES; next += COLUMNS_MADE) {
    const int first = min(next, STATES - COLUMNS_MADE);  // the last columns once more
    acc_piece *sum = (acc_piece *)(out + first);
    FOR_PIECE(n) sum[n] = 0;
    for (int m = 0; m < STATES; ++m) {
      const acc weighted = system[MODEL_RIGHT + i * STATES + m] * exponentials[m];
      __global const acc *left = system + MODEL_LEFT + m * STATES + first;
      FOR_PIECE(n) sum[n] += weighted * ((__global const acc_piece *)left)[n];
    }
  }
  for (int j = 0; j < STATES; ++j) {
    const acc change = out[j] + (i == j);
    out[j] = change > 0 ? change : 0;
  }
}

#if TIP_LOOKUP
// P x tip of every code. Most codes are a single state, which makes most terms zero: a CPU skips
// them, a GPU had better not branch.
static inline void tip_rows_fill(const plf_t *s, acc rows[MATRIX_ROWS][STATES], int first,
                                 __global real *table) {
  for (int code = 0; code < CODES; ++code) {
    acc sum[MATRIX_ROWS];
    for (int r = 0; r < MATRIX_ROWS; ++r) sum[r] = 0;
    for (int j = 0; j < STATES; ++j) {
      const acc has = s->tip_table[code * STATES + j];
      if (LANES == 1 && has == 0) continue;
      for (int r = 0; r < MATRIX_ROWS; ++r) sum[r] += has * rows[r][j];
    }
    for (int r = 0; r < MATRIX_ROWS; ++r) table[code * STATES + first + r] = sum[r];
  }
}
#endif

#if SITE_SYSTEMS
static inline void pmatrix_fill(const plf_t *s, int p, int length, int model, int k, int first) {
  const acc rate = s->model[(size_t)model * MODEL_WORDS + MODEL_RATES + k];
  if (first == 0) s->pmatrix[MATRIX_AT(p, k, PMATRIX_ROW)] = LENGTHS_AT(s)[length] * rate;
}
#elif STATE_ITEMS > 1
// A row of P is a lane's vector here: V times the vector of e_m V_im has (P - I)_ij / pi_j, since
// V^-1 is the transpose of diag(pi) V (mltree/models/eigen.py); and the tips' codes times a row of
// P its numbers of P x tip.
static inline void pmatrix_fill(const plf_t *s, int p, int length, int model, int k, int first) {
  __global const acc *row = s->model + (size_t)model * MODEL_WORDS, *system = row + SYSTEM_AT(k);
  __global const acc *right = system + MODEL_RIGHT;
  __global real *matrix = s->pmatrix + MATRIX_AT(p, k, PMATRIX_ROW);
  __global real *table = s->tip_pmatrix + MATRIX_AT(p, k, TIP_ROW);
  const acc time = LENGTHS_AT(s)[length] * row[MODEL_RATES + k];
  int own[WIDTH];
  UNROLLED(w, WIDTH) own[w] = first + w * WARP_LANES + WARP_LANE;
  real_v x[HELD], of_p[HELD];
  FOR_STATE(m) {
    const acc change = expm1(system[READ_STATE(m)] * time);
    UNROLLED(w, WIDTH)
    ((real *)(x + m))[w] =
        IS_STATE(m) ? right[min(own[w], STATES - 1) * STATES + STATE(m)] * change : 0;
    if (own[0] == 0 && IS_STATE(m)) matrix[SQUARE + STATE(m)] = change;
  }
  series_t sum;
  if (series_of(s, model, k, time, &sum)) {
    series_rows(&sum, system + MODEL_FREQUENCIES, own, of_p);
  } else {
    FOR_TILE(t) {
      real_v y[TILE];
      tile_times(right, t, x, y);
      FOR_OF_TILE(t, r) {
        const int j = OF_TILE(t, r);
        const acc pi = system[MODEL_FREQUENCIES + READ_STATE(j)];
        UNROLLED(w, WIDTH) {
          const acc entry = ((real *)(y + r))[w] * pi + (own[w] == STATE(j));
          ((real *)(of_p + j))[w] = IS_STATE(j) && entry > 0 ? entry : 0;
        }
      }
    }
  }
  FOR_STATE(j) UNROLLED(w, WIDTH)
  if (IS_STATE(j) && own[w] < STATES) matrix[own[w] * STATES + STATE(j)] = ((real *)(of_p + j))[w];
  for (int t = 0; t < (CODES + TILE * STATE_ITEMS - 1) / (TILE * STATE_ITEMS); ++t) {
    real_v y[TILE];
    rows_times(s->tip_table, CODES, t, of_p, y);
    UNROLLED(r, TILE) UNROLLED(w, WIDTH) {
      const int code = STATE(TILE * t + r);
      if (code < CODES && own[w] < STATES) table[code * STATES + own[w]] = ((real *)(y + r))[w];
    }
  }
}
#else
static inline void pmatrix_fill(const plf_t *s, int p, int length, int model, int k, int first) {
  __global const acc *row = s->model + (size_t)model * MODEL_WORDS, *system = row + SYSTEM_AT(k);
  const acc time = LENGTHS_AT(s)[length] * row[MODEL_RATES + k];
  acc exponentials[STATES];
#if LANES == 1
  for (int next = 0; next < STATES; next += EXPONENTIALS_MADE) {
    const int m = min(next, STATES - EXPONENTIALS_MADE);  // the last ones once more
    const exponentials_t change = expm1(JOIN(vload, EXPONENTIALS_MADE)(0, system + m) * time);
    JOIN(vstore, EXPONENTIALS_MADE)(change, 0, exponentials + m);
  }
#else
  for (int m = 0; m < STATES; ++m) exponentials[m] = expm1(system[m] * time);
#endif
  acc rows[MATRIX_ROWS][STATES];
  series_t sum;
  if (series_of(s, model, k, time, &sum)) {
    series_rows(&sum, first, MATRIX_ROWS, rows);
    for (int r = 0; r < MATRIX_ROWS; ++r)
      for (int j = 0; j < STATES; ++j) rows[r][j] = series_entry(rows[r][j]);
  } else {
    for (int r = 0; r < MATRIX_ROWS; ++r) matrix_row(system, exponentials, first + r, rows[r]);
  }
  __global real *matrix = s->pmatrix + MATRIX_AT(p, k, PMATRIX_ROW);
  for (int r = 0; r < MATRIX_ROWS; ++r) {
    const int i = first + r;
    for (int j = 0; j < STATES; ++j) matrix[i * STATES + j] = rows[r][j];
    matrix[SQUARE + i] = exponentials[i];
  }
#if TIP_LOOKUP
  tip_rows_fill(s, rows, first, s->tip_pmatrix + MATRIX_AT(p, k, TIP_ROW));
#endif
}
#endif

STAGE_FUNCTION void pmatrices_stage(const plf_t *s, __global const int *records, int count,
                                    int most_parts, int group_size) {
  const uint shares = (STATES + MATRIX_ROWS - 1) / MATRIX_ROWS, matrix_jobs = shares * CATEGORIES;
  const uint jobs = count * most_parts * matrix_jobs, makers = GROUPS * group_size / MATRIX_ITEMS;
  for (uint job = (GROUP * group_size + ITEM) / MATRIX_ITEMS; job < jobs; job += makers) {
    const uint matrix = job / matrix_jobs, share = job % matrix_jobs;
    __global const int *record = records + (PARTED ? matrix / most_parts : matrix) * PMATRIX_WORDS;
    int part = 0;
#if PARTED
    __global const int *of = case_of(s, record[PMATRIX_CASE]);
    part = matrix % most_parts;
    if (part >= of[CASE_PARTS]) continue;
    part += of[CASE_FIRST_PART];
#endif
    pmatrix_fill(s, record[PMATRIX_P] + part,
                 record[PMATRIX_LENGTH] + record[PMATRIX_STRIDE] * part,
                 record[PMATRIX_MODEL] + part, share / shares, share % shares * MATRIX_ROWS);
  }
}

#endif
