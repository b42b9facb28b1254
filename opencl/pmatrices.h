// P matrices from branch lengths: P = I + V expm1(lambda r t) V^-1, which keeps the relative
// precision of the small entries of short branches. A work-item makes one row of one matrix.
#ifndef PMATRICES_H
#define PMATRICES_H

#include "session.h"

static inline void pmatrix_fill(const plf_t *s, int length, int model, int partition, int k,
                                int i) {
  __global const acc *row = s->model + (size_t)(model + partition) * MODEL_WORDS;
  const size_t at = ((size_t)length * s->partitions + partition) * CATEGORIES + k;
  __global real *p = s->pmatrix + at * PMATRIX_ROW;
  const acc time = LENGTHS_AT(s)[length] * row[MODEL_RATES + k];
  acc weighted[STATES], out[STATES];
  for (int m = 0; m < STATES; ++m)
    weighted[m] = row[MODEL_RIGHT + i * STATES + m] * expm1(row[m] * time);
  for (int j = 0; j < STATES; ++j) {
    acc sum = i == j;
    for (int m = 0; m < STATES; ++m) sum += weighted[m] * row[MODEL_LEFT + m * STATES + j];
    out[j] = fmax(sum, (acc)0);
    p[i * STATES + j] = out[j];
  }
  p[SQUARE + i] = expm1(row[i] * time);
#if TIP_LOOKUP
  if (length >= s->tip_lengths) return;
  __global real *table = s->tip_pmatrix + at * TIP_ROW;
  for (int code = 0; code < CODES; ++code) {
    acc sum = 0;
    for (int j = 0; j < STATES; ++j) sum += s->tip_table[code * STATES + j] * out[j];
    table[code * STATES + i] = sum;
  }
#endif
}

static inline void pmatrices_stage(const plf_t *s, __global const int *records, int count,
                                   int group_size) {
  const int rows = count * s->partitions * CATEGORIES * STATES;
  const int items = get_num_groups(0) * group_size;
  for (int q = get_group_id(0) * group_size + ITEM; q < rows; q += items) {
    const int i = q % STATES, k = q / STATES % CATEGORIES;
    const int matrix = q / (STATES * CATEGORIES), partition = matrix % s->partitions;
    __global const int *record = records + matrix / s->partitions * PMATRIX_WORDS;
    pmatrix_fill(s, record[PMATRIX_LENGTH], record[PMATRIX_MODEL], partition, k, i);
  }
}

#endif
