// Resampled estimated log-likelihoods: of every tree whose site lnL stand in a row, under every row
// of weights,
//   sum[t][w] = sum_patterns site_lnl[t][pattern] weights[w][pattern]
// A work-item has a tile of RELL_TILE x RELL_TILE of them to itself and goes through the patterns
// as REDUCE goes through chunks, so that panels' sums add up to the same bits.
#define TERMS 1
#define TAKES_SPANS

#include "grid.h"

#define OWN_OP OP_RELL
#define WORKER_ROWS 1
#define LOCAL_TERMS 1
#define LOCAL_LANES 1
#define LOCAL_CELLS 1

// A row of a [row][pattern] array, in vectors.
static inline __global const acc_v *row_at(const plf_t *s, __global const acc *rows, int row) {
  return (__global const acc_v *)rows + (size_t)row * s->blocks * LANES;
}

static inline acc vector_sum(acc_v x) {
  acc lanes[WIDTH], sum = 0;
  *(acc_v *)lanes = x;
  for (int lane = 0; lane < WIDTH; ++lane) sum += lanes[lane];
  return sum;
}

// One strided sum of a tile: over every width-th chunk.
static inline void rell_residue(const plf_t *s, __global const acc_v *lnl[RELL_TILE],
                                __global const acc_v *weights[RELL_TILE], chunks_t of, int width,
                                acc out[RELL_TILE][RELL_TILE]) {
  acc_v sum[RELL_TILE][RELL_TILE];
  for (int t = 0; t < RELL_TILE; ++t)
    for (int w = 0; w < RELL_TILE; ++w) sum[t][w] = 0;
  for (int chunk = of.first; chunk < of.end; chunk += width) {
    const int end = chunk_end(s, chunk) * LANES;
    for (int v = chunk_begin(s, chunk) * LANES; v < end; ++v) {
      acc_v row[RELL_TILE];
      for (int w = 0; w < RELL_TILE; ++w) row[w] = weights[w][v];
      for (int t = 0; t < RELL_TILE; ++t) {
        const acc_v own = lnl[t][v];
        for (int w = 0; w < RELL_TILE; ++w) sum[t][w] += own * row[w];
      }
    }
  }
  for (int t = 0; t < RELL_TILE; ++t)
    for (int w = 0; w < RELL_TILE; ++w) out[t][w] = vector_sum(sum[t][w]);
}

// A tile's sums: whole ones, or those of each residue of a panel.
static inline void rell_tile(const plf_t *s, __global const int *record, int tree, int row) {
  const int rows = record[RELL_ROWS], columns = record[RELL_WEIGHTS];
  __global const acc_v *lnl[RELL_TILE], *weights[RELL_TILE];
  for (int n = 0; n < RELL_TILE; ++n) {
    lnl[n] = row_at(s, s->site_lnl, record[RELL_FIRST_ROW] + min(tree + n, rows - 1));
    weights[n] = row_at(s, s->weights, record[RELL_FIRST_WEIGHTS] + min(row + n, columns - 1));
  }
  const chunks_t whole = chunks_of(s, record[RELL_FIRST_PART], record[RELL_PARTS]);
  const int residues = s->residues, width = residues == 0 ? REDUCE_WIDTH : residues;
  for (int v = 0; v < width; ++v) {
    const int shift = residues == 0 ? v : v + width - (s->first_chunk + whole.first) % width;
    const chunks_t of = {whole.first + shift % width, whole.end};
    acc sums[RELL_TILE][RELL_TILE];
    rell_residue(s, lnl, weights, of, width, sums);
    for (int t = 0; t < min(RELL_TILE, rows - tree); ++t)
      for (int w = 0; w < min(RELL_TILE, columns - row); ++w) {
        const int n = (tree + t) * columns + row + w;
        __global acc *sum = SUMS_AT(s);
        if (residues == 0) {
          sum += record[RELL_SUM] + n;
          *sum = v == 0 ? sums[t][w] : *sum + sums[t][w];
        } else {
          sum += (size_t)record[RELL_SUM] * width + (size_t)v * rows * columns + n;
          *sum = s->first_chunk == 0 ? sums[t][w] : *sum + sums[t][w];
        }
      }
  }
}

static inline void own_stage(const plf_t *s, __global const int *records, int count, int aux,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const long items = (long)get_num_groups(0) * GROUP_SIZE(WORKER_ROWS);
  for (int n = 0; n < count; ++n) {
    __global const int *record = records + n * RELL_WORDS;
    const long across = (record[RELL_WEIGHTS] + RELL_TILE - 1) / RELL_TILE;
    const long tiles = (record[RELL_ROWS] + RELL_TILE - 1) / RELL_TILE * across;
    for (long tile = (long)get_group_id(0) * GROUP_SIZE(WORKER_ROWS) + ITEM; tile < tiles;
         tile += items)
      rell_tile(s, record, tile / across * RELL_TILE, tile % across * RELL_TILE);
  }
  mark(book, since, FN_RELL);
}

#include "worker.h"
