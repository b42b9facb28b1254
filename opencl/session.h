// What a worker holds for the whole run, and where things lie in it.
#ifndef SESSION_H
#define SESSION_H

#include "lanes.h"

// A model row: eigenvalues[S] | right[S][S] | left[S][S] | pi_right[S][S] | Q[S][S] | Q Q[S][S]
//              | frequencies[S] | rates[K] | weights[K]
#define SQUARE (STATES * STATES)
#define MODEL_RIGHT STATES
#define MODEL_LEFT (MODEL_RIGHT + SQUARE)
#define MODEL_PI_RIGHT (MODEL_LEFT + SQUARE)
#define MODEL_GENERATOR (MODEL_PI_RIGHT + SQUARE)
#define MODEL_GENERATOR_2 (MODEL_GENERATOR + SQUARE)
#define MODEL_FREQUENCIES (MODEL_GENERATOR_2 + SQUARE)
#define MODEL_RATES (MODEL_FREQUENCIES + STATES)
#define MODEL_WEIGHTS (MODEL_RATES + CATEGORIES)
#define MODEL_WORDS (MODEL_WEIGHTS + CATEGORIES)

// A P matrix per category: P[S][S] | expm1(lambda r t)[S]
#define PMATRIX_ROW (SQUARE + STATES)
#define TIP_ROW (CODES * STATES)

typedef struct {
  __global const int *program;          // stages and records
  __global acc *state;                  // best | target | header | control | lengths | sums
  __global real *cla;                   // [slot][block][category][state][lane]
  __global ushort *scaler;              // [slot][block][category][lane]
  __global real *pmatrix;               // [length][partition][category][PMATRIX_ROW]
  __global real *tip_pmatrix;           // [length][partition][category][code][S]
  __global real *stack;                 // what local memory does not hold of stacks (stack.h)
  __global acc *partial;                // [cell][chunk]
  __global acc *site_lnl;               // [pattern], of EVALUATE_SITES and walks
  __global const uchar *tips;           // [tip][pattern]
  __global const real *tip_table;       // [code][S]
  __global const acc *model;            // [row][MODEL_WORDS]
  __global const real *model_real;      // the same in the CLAs' precision
  __global const acc *weights;          // [pattern], 0 in the padding
  __global const int *block_partition;  // [block]
  __global uint *sync;                  // counters of work-groups: SYNC_ARRIVED, ...
  __global ulong *marks;                // MARK_STARTED, MARK_ELAPSED, [work-group][FUNCTIONS]
  int blocks, chunks, chunk_blocks;
  int first_chunk;  // chunks of the device's panels before this one
  int tile_blocks;
  int controls, lengths;  // records in front of the sums
  int stack_levels;       // of a work-group's own stack
  int local_levels;       // of them in local memory
  acc min_length, max_length;
} plf_t;

#define BEST_AT(s) ((s)->state)
#define TARGET_AT(s) (BEST_AT(s) + (s)->lengths)
#define HEADER_AT(s) (TARGET_AT(s) + (s)->lengths)
#define CONTROL_AT(s, g) (HEADER_AT(s) + HEADER_WORDS + (size_t)(g) * CONTROL_WORDS)
#define LENGTHS_AT(s) CONTROL_AT(s, (s)->controls)
#define SUMS_AT(s) (LENGTHS_AT(s) + (s)->lengths)

// The first fault counts: what came after it went on without what failed.
static inline void report_fault(const plf_t *s, int fault, int stage) {
  if (HEADER_AT(s)[0] != FAULT_NONE) return;
  HEADER_AT(s)[0] = fault;
  HEADER_AT(s)[1] = stage;
}

// CLAs are addressed in lanes: element (slot, block, category, state) of this work-item.
static inline size_t cla_index(const plf_t *s, int slot, int block, int k) {
  return (((size_t)slot * s->blocks + block) * CATEGORIES + k);
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

static inline acc_v pattern_weights(const plf_t *s, int block, int lane) {
  return ((__global const acc_v *)s->weights)[(size_t)block * LANES + lane];
}

// A lone partition is not looked up: the address of every P matrix would wait for it.
static inline int partition_of(const plf_t *s, int block) {
  return PARTITIONS == 1 ? 0 : s->block_partition[block];
}

// Where the rows of a branch length start, in one category: few multiplications, for they are done
// for every operand. Rows of a length are fewer than an int counts.
#define BRANCH_AT(length, partition, k, row) \
  ((size_t)(length) * (PARTITIONS * CATEGORIES * (row)) + ((partition) * CATEGORIES + (k)) * (row))

static inline __global const real *pmatrix_row(const plf_t *s, int length, int block, int k) {
  return s->pmatrix + BRANCH_AT(length, partition_of(s, block), k, PMATRIX_ROW);
}

static inline __global const real *model_row(const plf_t *s, int model, int block) {
  return s->model_real + (size_t)(model + partition_of(s, block)) * MODEL_WORDS;
}

#endif
