// Where a step of the insertion scan stands, and what it reads and leaves there.
#ifndef SCAN_PLACE_H
#define SCAN_PLACE_H

#include "operand.h"
#include "stack.h"
#include "sums.h"

// A side of a step: its fields in the record, from the operand on.
#define SIDE_P (SCAN_STEP_LEFT_P - SCAN_STEP_LEFT)
#define SIDE_HALF_P (SCAN_STEP_LEFT_HALF_P - SCAN_STEP_LEFT)
#define SIDE_LEVEL (SCAN_STEP_LEFT_LEVEL - SCAN_STEP_LEFT)
#define SIDE_OUTPUT (SCAN_STEP_LEFT_OUTPUT - SCAN_STEP_LEFT)

// Where a step stands.
typedef struct {
  int block, k, level_in;
  bool stores;  // near vectors into slots, instead of scores
  __local real_v *stack, *terms;
  __local count_v *counts;
} place_t;

#define IS_ASKED(side) ((side)[SIDE_OUTPUT] >= 0 || (side)[SIDE_LEVEL] >= 0)

// An insertion's share in the place's category, for the batch to sum.
VECTOR_FUNCTION void leave_term(const place_t *at, int batch, real_v term, count_v count) {
  const real_v own[TERMS] = {term};
  leave_count(at->counts, batch, at->k, COLUMN, count);
  leave_terms(at->terms, at->counts, batch, at->k, COLUMN, own, count);
}

#endif
