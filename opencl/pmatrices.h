// P matrices from branch lengths: P = I + V expm1(lambda r t) V^-1, which keeps the relative
// precision of the small entries of short branches.
#ifndef PMATRICES_H
#define PMATRICES_H

#include "grid.h"

// Rows of a P matrix that a work-item makes: one on GPUs, all from the same exponentials on CPUs.
#define MATRIX_ROWS (LANES == 1 ? STATES : 1)

static inline void pmatrix_row_fill(const plf_t *s, __global const acc *row,
                                    const acc exponentials[STATES], int i, __global real *p,
                                    __global real *tips) {
  acc out[STATES];
  for (int j = 0; j < STATES; ++j) out[j] = i == j;
  for (int m = 0; m < STATES; ++m) {
    const acc weighted = row[MODEL_RIGHT + i * STATES + m] * exponentials[m];
    for (int j = 0; j < STATES; ++j) out[j] += weighted * row[MODEL_LEFT + m * STATES + j];
    if (m == i) p[SQUARE + m] = exponentials[m];
  }
  for (int j = 0; j < STATES; ++j) {
    out[j] = fmax(out[j], (acc)0);
    p[i * STATES + j] = out[j];
  }
#if TIP_LOOKUP
  if (!tips) return;
  for (int code = 0; code < CODES; ++code) {
    acc sum = 0;
    for (int j = 0; j < STATES; ++j) sum += s->tip_table[code * STATES + j] * out[j];
    tips[code * STATES + i] = sum;
  }
#endif
}

static inline void pmatrix_fill(const plf_t *s, int length, int model, int partition, int k,
                                int first) {
  __global const acc *row = s->model + (size_t)(model + partition) * MODEL_WORDS;
  const size_t at = ((size_t)length * s->partitions + partition) * CATEGORIES + k;
  const acc time = LENGTHS_AT(s)[length] * row[MODEL_RATES + k];
  acc exponentials[STATES];
  for (int m = 0; m < STATES; ++m) exponentials[m] = expm1(row[m] * time);
  for (int i = first; i < first + MATRIX_ROWS; ++i)
    pmatrix_row_fill(s, row, exponentials, i, s->pmatrix + at * PMATRIX_ROW,
                     length < s->tip_lengths ? s->tip_pmatrix + at * TIP_ROW : 0);
}

STAGE_FUNCTION void pmatrices_stage(const plf_t *s, __global const int *records, int count,
                                    int group_size) {
  const int parts = STATES / MATRIX_ROWS;
  const int jobs = count * s->partitions * CATEGORIES * parts;
  const int items = get_num_groups(0) * group_size;
  for (int q = get_group_id(0) * group_size + ITEM; q < jobs; q += items) {
    const int first = q % parts * MATRIX_ROWS, k = q / parts % CATEGORIES;
    const int matrix = q / (parts * CATEGORIES), partition = matrix % s->partitions;
    __global const int *record = records + matrix / s->partitions * PMATRIX_WORDS;
    pmatrix_fill(s, record[PMATRIX_LENGTH], record[PMATRIX_MODEL], partition, k, first);
  }
}

#endif
