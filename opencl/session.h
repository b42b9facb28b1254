// What a worker holds for the whole run, and where things lie in it.
#ifndef SESSION_H
#define SESSION_H

#include "lanes.h"

// A model row: SYSTEMS times
//   eigenvalues[S] | right[S][S] | left[S][S] | Q[S][S] | Q Q[S][S] | frequencies[S]
// and then rates[K] | weights[K].
#define SQUARE (STATES * STATES)
#define MODEL_RIGHT STATES
#define MODEL_LEFT (MODEL_RIGHT + SQUARE)
#define MODEL_GENERATOR (MODEL_LEFT + SQUARE)
#define MODEL_GENERATOR_2 (MODEL_GENERATOR + SQUARE)
#define MODEL_FREQUENCIES (MODEL_GENERATOR_2 + SQUARE)
#define SYSTEM_WORDS (MODEL_FREQUENCIES + STATES)
#define MODEL_RATES (SYSTEMS * SYSTEM_WORDS)
#define MODEL_WEIGHTS (MODEL_RATES + CATEGORIES)
#define MODEL_WORDS (MODEL_WEIGHTS + CATEGORIES)

// Where category k's eigen system starts in a model row.
#if SYSTEMS == 1
#define SYSTEM_AT(k) 0
#else
#define SYSTEM_AT(k) ((k) / (CATEGORIES / SYSTEMS) * SYSTEM_WORDS)
#endif

// A P matrix per category: P[S][S] | expm1(lambda r t)[S]; where patterns have eigen systems of
// their own, but r t.
#if SITE_SYSTEMS
#define PMATRIX_ROW 1
#else
#define PMATRIX_ROW (SQUARE + STATES)
#endif
#define TIP_ROW (CODES * STATES)

typedef struct {
  SESSION_MEMBERS
#if LONE
  size_t group, groups;
#endif
} plf_t;

static inline __global acc *control_of(const plf_t *s, int group) {
  return CONTROL_AT(s) + (size_t)group * CONTROL_WORDS;
}

// The first fault counts: what came after it went on without what failed.
static inline void report_fault(const plf_t *s, int fault, int stage) {
  if (HEADER_AT(s)[0] != FAULT_NONE) return;
  HEADER_AT(s)[0] = fault;
  HEADER_AT(s)[1] = stage;
}

// CLAs are addressed in lanes: element (slot, block, category, state) of this work-item. They may
// have the blocks of some parts alone.
static inline size_t cla_index(const plf_t *s, int slot, int block, int k) {
  const int own = PARTED ? block - s->cla_first : block;
  return (((size_t)slot * s->cla_blocks + own) * CATEGORIES + k);
}

static inline real_v cla_load(__global const real *cla, size_t row, int state) {
  return ((__global const real_v *)cla)[(row * STATES + state) * LANES + LANE];
}

static inline void cla_store(__global real *cla, size_t row, int state, real_v x) {
  ((__global real_v *)cla)[(row * STATES + state) * LANES + LANE] = x;
}

static inline count_v count_load(__global const ushort *scaler, size_t row) {
  return TO_COUNT(((__global const stored_count_v *)scaler)[row * LANES + LANE]);
}

static inline void count_store(__global ushort *scaler, size_t row, count_v count) {
  ((__global stored_count_v *)scaler)[row * LANES + LANE] = TO_STORED(count);
}

static inline code_v tip_codes(const plf_t *s, int tip, int block) {
  return ((__global const code_v *)s->tips)[((size_t)tip * s->blocks + block) * LANES + LANE];
}

static inline __global const int *case_of(const plf_t *s, int number) {
  return s->program + s->first_case + number * CASE_WORDS;
}

static inline acc_v pattern_weights(const plf_t *s, int row, int block) {
  return ((__global const acc_v *)s->weights)[((size_t)row * s->blocks + block) * LANES + LANE];
}

static inline void site_lnl_store(const plf_t *s, int number, int block, acc_v lnl) {
  const size_t row = (size_t)number * s->blocks;
  ((__global acc_v *)s->site_lnl)[(row + block) * LANES + LANE] = lnl;
}

// A lone part is not looked up: the address of every P matrix would wait for it.
static inline int part_of(const plf_t *s, int block) {
  return PARTED ? s->block_part[block] : 0;
}

// Where the rows of a P matrix start, in one category: few multiplications, for they are done for
// every operand. Rows of a matrix are fewer than an int counts.
#define MATRIX_AT(p, k, row) ((size_t)(p) * (CATEGORIES * (row)) + (k) * (row))

static inline __global const real *pmatrix_row(const plf_t *s, int p, int block, int k) {
  return s->pmatrix + MATRIX_AT(p + part_of(s, block), k, PMATRIX_ROW);
}

static inline __global const real *model_row(const plf_t *s, int model, int block) {
  return s->model_real + (size_t)(model + part_of(s, block)) * MODEL_WORDS;
}

// Chunks first ... end - 1.
typedef struct {
  int first, end;
} chunks_t;

// The chunks of some parts, and of a case.
static inline chunks_t chunks_of(const plf_t *s, int first_part, int parts) {
#if PARTED
  const chunks_t chunks = {s->part_chunk[first_part], s->part_chunk[first_part + parts]};
#else
  const chunks_t chunks = {0, s->chunks};
#endif
  return chunks;
}

static inline chunks_t case_chunks(const plf_t *s, int number) {
#if PARTED
  __global const int *of = case_of(s, number);
  return chunks_of(s, of[CASE_FIRST_PART], of[CASE_PARTS]);
#else
  return chunks_of(s, 0, 1);
#endif
}

static inline int chunk_begin(const plf_t *s, int chunk) {
  return PARTED ? s->chunk_block[chunk] : chunk * s->chunk_blocks;
}

static inline int chunk_end(const plf_t *s, int chunk) {
  return PARTED ? s->chunk_block[chunk + 1] : min((chunk + 1) * s->chunk_blocks, s->blocks);
}

#endif
