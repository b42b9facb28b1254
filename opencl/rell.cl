// Resampled estimated log-likelihoods: of every tree whose site lnL stand in a row, under every row
// of weights,
//   sum[t][w] = sum_patterns site_lnl[t][pattern] weights[w][pattern]
// A work-group makes a patch of PATCH_TREES x PATCH_ROWS of them at a time, in tiles of RELL_TILE x
// RELL_TILE that stay in registers. It goes through the patterns as REDUCE goes through chunks, so
// that shards' sums add up to the same bits; the shapes of patches and tiles change none.
#define TERMS 1
#define TAKES_SPANS

#include "grid.h"

#define OWN_OP OP_RELL
#define WORKER_ROWS 1
#define LOCAL_TERMS 1
#define LOCAL_CELLS 1

#define RELL_TILES (2 * RELL_TILE)  // of a patch, either way; see Rell in ops/reduce.py
#if LANES == 1
// A CPU's work-item has all tiles of a patch, and takes them chunk by chunk, whose rows stay in its
// cache.
#define TREE_TILES RELL_TILES
#define ROW_TILES RELL_TILES
#define TREE_STEP 1
#define ROW_STEP 1
#define LOCAL_LANES 1
#else
// A GPU's has one, and its group brings a few vectors of all rows to local memory. The rows of a
// tile are as far apart as there are work-items, so that neighbours read neighbours.
#define TREE_TILES 1
#define ROW_TILES 1
#define TREE_STEP RELL_TILES
#define ROW_STEP (GROUP_SIZE(1) / RELL_TILES)
#define STAGED (PATCH_TREES + PATCH_ROWS + 1)  // odd, so that all banks are written at once
#if STAGED * WIDTH <= 512
#define DEPTH 8  // vectors of a row that are brought at a time: 32 KiB of all rows at most
#elif STAGED * WIDTH <= 1024
#define DEPTH 4
#else
#define DEPTH 2
#endif
#define LOCAL_LANES (DEPTH * STAGED)
#endif
#define PATCH_TREES (RELL_TILE * TREE_TILES * TREE_STEP)
#define PATCH_ROWS (RELL_TILE * ROW_TILES * ROW_STEP)

#define FOR_TILE(n) UNROLLED(n, RELL_TILE)

// A patch of a record's product; rows beyond the last are the last again.
typedef struct {
  __global const acc_v *lnl, *weights;  // rows of all patterns
  size_t stride;                        // vectors of a row
  int trees, rows;                      // of the record
  int tree, row;                        // the first ones of the patch
} patch_t;

static inline __global const acc_v *lnl_at(const patch_t *p, int tree) {
  return p->lnl + min(tree, p->trees - 1) * p->stride;
}

static inline __global const acc_v *weights_at(const patch_t *p, int row) {
  return p->weights + min(row, p->rows - 1) * p->stride;
}

// The lanes' sum, by halves.
static inline acc vector_sum(acc_v x) {
  acc lanes[WIDTH];
  *(acc_v *)lanes = x;
#if WIDTH > 8
  UNROLLED(n, 8) lanes[n] += lanes[n + 8];
#endif
#if WIDTH > 4
  UNROLLED(n, 4) lanes[n] += lanes[n + 4];
#endif
#if WIDTH > 2
  UNROLLED(n, 2) lanes[n] += lanes[n + 2];
#endif
#if WIDTH > 1
  lanes[0] += lanes[1];
#endif
  return lanes[0];
}

// Adds vectors begin ... end - 1 of all rows to the work-item's tiles.
#if LANES == 1
VECTOR_FUNCTION void add_to_tile(const patch_t *p, int tree, int row, int begin, int end,
                                 acc_v tile[RELL_TILE][RELL_TILE]) {
  __global const acc_v *lnl[RELL_TILE], *weights[RELL_TILE];
  FOR_TILE(n) lnl[n] = lnl_at(p, tree + n);
  FOR_TILE(n) weights[n] = weights_at(p, row + n);
  acc_v sum[RELL_TILE][RELL_TILE];
  FOR_TILE(t) FOR_TILE(w) sum[t][w] = tile[t][w];
  for (int v = begin; v < end; ++v) {
    acc_v row_of[RELL_TILE];
    FOR_TILE(w) row_of[w] = weights[w][v];
    FOR_TILE(t) {
      const acc_v own = lnl[t][v];
      FOR_TILE(w) sum[t][w] += own * row_of[w];
    }
  }
  FOR_TILE(t) FOR_TILE(w) tile[t][w] = sum[t][w];
}

static inline void add_vectors(const patch_t *p, int begin, int end, __local acc_v *staged,
                               acc_v tiles[TREE_TILES * ROW_TILES][RELL_TILE][RELL_TILE]) {
  for (int a = 0; a < TREE_TILES; ++a)
    for (int b = 0; b < ROW_TILES; ++b) {
      const int tree = p->tree + a * RELL_TILE, row = p->row + b * RELL_TILE;
      if (tree < p->trees && row < p->rows)
        add_to_tile(p, tree, row, begin, end, tiles[a * ROW_TILES + b]);
    }
}
#else
static inline void add_vectors(const patch_t *p, int begin, int end, __local acc_v *staged,
                               acc_v tiles[1][RELL_TILE][RELL_TILE]) {
  __local const acc_v *lnl = staged + ITEM / ROW_STEP;
  __local const acc_v *weights = staged + PATCH_TREES + ITEM % ROW_STEP;
  for (int v = begin; v < end; v += DEPTH) {
    const int depth = min(DEPTH, end - v);
    sync_group(CLK_LOCAL_MEM_FENCE);
    for (int n = ITEM; n < DEPTH * (PATCH_TREES + PATCH_ROWS); n += GROUP_SIZE(1)) {
      const int d = n % DEPTH, r = n / DEPTH;
      if (d < depth)
        staged[d * STAGED + r] = r < PATCH_TREES ? lnl_at(p, p->tree + r)[v + d]
                                                 : weights_at(p, p->row + r - PATCH_TREES)[v + d];
    }
    sync_group(CLK_LOCAL_MEM_FENCE);
    for (int d = 0; d < depth; ++d) {
      acc_v row_of[RELL_TILE];
      FOR_TILE(w) row_of[w] = weights[d * STAGED + w * ROW_STEP];
      FOR_TILE(t) {
        const acc_v own = lnl[d * STAGED + t * TREE_STEP];
        FOR_TILE(w) tiles[0][t][w] += own * row_of[w];
      }
    }
  }
}
#endif

// Leaves a tile's sums over reduction lane v of so many: added to the whole ones, or beside the
// others.
static inline void leave_tile(const plf_t *s, __global const int *record, const patch_t *p,
                              int tree, int row, int v, int width,
                              acc_v tile[RELL_TILE][RELL_TILE]) {
  const bool is_whole = s->reduction_lanes == 0;
  const size_t first = is_whole ? record[RELL_SUM]
                                : (size_t)record[RELL_SUM] * width + (size_t)v * p->trees * p->rows;
  const bool is_first = is_whole ? v == 0 : s->first_chunk == 0;
  FOR_TILE(t) FOR_TILE(w) {
    const int t_at = tree + t * TREE_STEP, w_at = row + w * ROW_STEP;
    if (t_at < p->trees && w_at < p->rows) {
      __global acc *sum = SUMS_AT(s) + first + (size_t)t_at * p->rows + w_at;
      const acc own = vector_sum(tile[t][w]);
      *sum = is_first ? own : *sum + own;
    }
  }
}

// A patch's sums over reduction lanes ``from`` to ``to - 1`` of so many.
static inline void rell_patch(const plf_t *s, __global const int *record, const patch_t *p,
                              int from, int to, int width, __local acc_v *staged) {
  const chunks_t whole = chunks_of(s, record[RELL_FIRST_PART], record[RELL_PARTS]);
  const int reduction_lanes = s->reduction_lanes;
  for (int v = from; v < to; ++v) {
    const int shift = reduction_lanes == 0 ? v : v + width - (s->first_chunk + whole.first) % width;
    const int first = whole.first + shift % width;
    if (first >= whole.end && v > 0 && reduction_lanes == 0)
      continue;  // fewer chunks than reduction_lanes
    acc_v tiles[TREE_TILES * ROW_TILES][RELL_TILE][RELL_TILE];
    for (int n = 0; n < TREE_TILES * ROW_TILES; ++n) FOR_TILE(t) FOR_TILE(w) tiles[n][t][w] = 0;
    for (int chunk = first; chunk < whole.end; chunk += width)
      add_vectors(p, chunk_begin(s, chunk) * LANES, chunk_end(s, chunk) * LANES, staged, tiles);
    for (int n = 0; n < TREE_TILES * ROW_TILES; ++n) {
      const int tree = n / ROW_TILES * RELL_TILE + ITEM / ROW_STEP % RELL_TILES;
      const int row = n % ROW_TILES * RELL_TILE + ITEM % ROW_STEP;
      leave_tile(s, record, p, p->tree + tree, p->row + row, v, width, tiles[n]);
    }
  }
}

// Patches of the same rows of weights one after another: trees are fewer, and stay in a cache.
// Whole sums are added up reduction lane by reduction lane by one work-group, strided ones left by
// as many.
static inline void own_stage(const plf_t *s, __global const int *records, int count, int aux,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const size_t stride = (size_t)s->blocks * LANES;
  const bool is_whole = s->reduction_lanes == 0;
  const int width = is_whole ? REDUCE_WIDTH : s->reduction_lanes;
  for (int n = 0; n < count; ++n) {
    __global const int *record = records + n * RELL_WORDS;
    const int trees = record[RELL_ROWS], rows = record[RELL_WEIGHTS];
    const long down = (trees + PATCH_TREES - 1) / PATCH_TREES;
    const long patches = (rows + PATCH_ROWS - 1) / PATCH_ROWS * down;
    for (long job = GROUP; job < patches * (is_whole ? 1 : width); job += GROUPS) {
      const long at = job % patches;
      const int v = is_whole ? 0 : (int)(job / patches);
      const patch_t patch = {
          (__global const acc_v *)s->site_lnl + record[RELL_FIRST_ROW] * stride,
          (__global const acc_v *)s->weights + record[RELL_FIRST_WEIGHTS] * stride,
          stride,
          trees,
          rows,
          at % down * PATCH_TREES,
          at / down * PATCH_ROWS};
      rell_patch(s, record, &patch, v, is_whole ? width : v + 1, width, lanes);
    }
  }
  mark(book, since, FN_RELL);
}

#include "worker.h"
