// Products of a matrix that all lanes share with every lane's vector.
#ifndef MATVEC_H
#define MATVEC_H

#include "lanes.h"
#if STATE_ITEMS > 1
#include "matrix_tiles.h"
#endif

#if STATE_ITEMS == 1
// (M x)_i for a row-major S x S matrix that all lanes share. On GPUs the matrix comes from memory
// once per work-item: two entries a load halve those loads.
#if LANES > 1 && STATES % 2 == 0
VECTOR_FUNCTION real_v row_times(__global const real *m, int i, const real_v x[HELD]) {
  __global const real_pair *row = (__global const real_pair *)m + i * (STATES / 2);
  real_v sum = 0;
  FOR_PAIR(j) {
    const real_pair pair = row[j];
    sum += pair.x * x[2 * j];
    sum += pair.y * x[2 * j + 1];
  }
  return sum;
}
#else
VECTOR_FUNCTION real_v row_times(__global const real *m, int i, const real_v x[HELD]) {
  real_v sum = 0;
  FOR_TERM(j) sum += m[i * STATES + j] * x[j];
  return sum;
}
#endif
#endif

// Tile t of y = M x: a row; what a warp's product leaves a work-item (matrix_tiles.h); or, where a
// row's sum alone would wait for itself, all of them.
#if STATE_ITEMS == 1 && (LANES > 1 || STATES <= 8)
#define TILE 1
VECTOR_FUNCTION void tile_times(__global const real *m, int t, const real_v x[HELD],
                                real_v y[TILE]) {
  y[0] = row_times(m, t, x);
}
#endif

// y = M x. On CPUs sums side by side hide each other's latency.
#if LANES > 1
VECTOR_FUNCTION void matvec(__global const real *m, const real_v x[HELD], real_v y[HELD]) {
  FOR_TILE(t) {
    real_v own[TILE];
    tile_times(m, t, x, own);
    FOR_OF_TILE(t, r) y[OF_TILE(t, r)] = own[r];
  }
}

// y = y * (M x), elementwise.
VECTOR_FUNCTION void matvec_times(__global const real *m, const real_v x[HELD], real_v y[HELD]) {
  FOR_TILE(t) {
    real_v own[TILE];
    tile_times(m, t, x, own);
    FOR_OF_TILE(t, r) y[OF_TILE(t, r)] *= own[r];
  }
}

// sum_i (M x)_i (M y)_i z_i, over the states that the work-item holds
VECTOR_FUNCTION real_v matvec_meeting(__global const real *m, const real_v x[HELD],
                                      const real_v y[HELD], const real_v z[HELD]) {
  real_v sum = 0;
  FOR_TILE(t) {
    real_v one[TILE], other[TILE];
    tile_times(m, t, x, one);
    tile_times(m, t, y, other);
    FOR_OF_TILE(t, r) sum += one[r] * (other[r] * z[OF_TILE(t, r)]);
  }
  return sum;
}

// z = (M x) * (M y), elementwise.
VECTOR_FUNCTION void matvec_met(__global const real *m, const real_v x[HELD], const real_v y[HELD],
                                real_v z[HELD]) {
  matvec(m, x, z);
  matvec_times(m, y, z);
}
#else
VECTOR_FUNCTION void matvec(__global const real *m, const real_v x[HELD], real_v y[HELD]) {
  for (int next = 0; next < STATES; next += SUMS) {
    const int i = min(next, STATES - SUMS);  // the last rows once more where SUMS does not divide
    real_v sum[SUMS];
    FOR_SUM(r) sum[r] = 0;
    FOR_TERM(j) FOR_SUM(r) sum[r] += m[(i + r) * STATES + j] * x[j];
    FOR_SUM(r) y[i + r] = sum[r];
  }
}

VECTOR_FUNCTION void matvec_times(__global const real *m, const real_v x[HELD], real_v y[HELD]) {
  real_v product[HELD];
  matvec(m, x, product);
  FOR_STATE(i) y[i] *= product[i];
}

// z = (M x) * (M y), elementwise; an entry of M is read once for both.
VECTOR_FUNCTION void matvec_met(__global const real *m, const real_v x[HELD], const real_v y[HELD],
                                real_v z[HELD]) {
  for (int next = 0; next < STATES; next += SUMS_MET) {
    const int i = min(next, STATES - SUMS_MET);
    real_v one[SUMS_MET], other[SUMS_MET];
    FOR_SUM_MET(r) one[r] = other[r] = 0;
    FOR_TERM(j) {
      FOR_SUM_MET(r) {
        const real entry = m[(i + r) * STATES + j];
        one[r] += entry * x[j];
        other[r] += entry * y[j];
      }
    }
    FOR_SUM_MET(r) z[i + r] = one[r] * other[r];
  }
}

VECTOR_FUNCTION real_v matvec_meeting(__global const real *m, const real_v x[HELD],
                                      const real_v y[HELD], const real_v z[HELD]) {
  real_v met[HELD], sum = 0;
  matvec_met(m, x, y, met);
  FOR_STATE(i) sum += met[i] * z[i];
  return sum;
}

#if STATES > 8
#define TILE STATES
VECTOR_FUNCTION void tile_times(__global const real *m, int t, const real_v x[HELD],
                                real_v y[TILE]) {
  matvec(m, x, y);
}
#endif
#endif

#endif
