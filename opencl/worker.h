// The worker: one launch runs the stages first_stage ... last_stage - 1 of a program, with a
// barrier over the grid between them. A front file (sites.cl, walk.cl, scan.cl, tripod.cl) defines
//   OWN_OP, own_stage()   the one stage that only they run
//   LOCAL_TERMS, LOCAL_LANES, LOCAL_CELLS   its needs of local memory, beside the stack
//   WORKER_ROWS           rows of a work-group
#ifndef WORKER_H
#define WORKER_H

#include "grid.h"
#include "optimise.h"
#include "pmatrices.h"

#define WORKER_SIZE GROUP_SIZE(WORKER_ROWS)
// NVIDIA's compiler keeps to a limit of registers only where no size is required.
#ifdef __NV_CL_C_VERSION
#define WORK_GROUP
#else
#define WORK_GROUP __attribute__((reqd_work_group_size(COLUMNS, CATEGORY_ITEMS, WORKER_ROWS)))
#endif
#define STRIDED (WORKER_SIZE < REDUCE_WIDTH ? WORKER_SIZE * REDUCE_WIDTH : WORKER_SIZE)

__kernel WORK_GROUP void worker(
    __global const int *restrict program, __global acc *state, __global real *cla,
    __global ushort *scaler, __global real *pmatrix, __global real *tip_pmatrix,
    __global real *stack, __global acc *partial, __global acc *site_lnl,
    __global const uchar *restrict tips, __global const real *restrict tip_table,
    __global const acc *restrict model, __global const real *restrict model_real,
    __global const acc *restrict weights, __global const int *restrict block_partition,
    __global uint *sync, __global ulong *marks, __local real_v *own_stack, int blocks,
    int chunk_blocks, int first_chunk, int tile_blocks, int controls, int lengths, int stack_levels,
    int local_levels, acc min_length, acc max_length, int first_stage, int last_stage) {
  const plf_t session = {program,
                         state,
                         cla,
                         scaler,
                         pmatrix,
                         tip_pmatrix,
                         stack,
                         partial,
                         site_lnl,
                         tips,
                         tip_table,
                         model,
                         model_real,
                         weights,
                         block_partition,
                         sync,
                         marks,
                         blocks,
                         (blocks + chunk_blocks - 1) / chunk_blocks,
                         chunk_blocks,
                         first_chunk,
                         tile_blocks,
                         controls,
                         lengths,
                         stack_levels,
                         local_levels,
                         min_length,
                         max_length};
  const plf_t *s = &session;
  const plf_t called = session;  // for calls, which take it from memory; the other stays out of it
  __local real_v terms[LOCAL_TERMS];
  __local count_v counts[LOCAL_TERMS / TERMS];
  __local acc_v lanes[LOCAL_LANES];
  __local acc strided[STRIDED];
  __local ulong book[FUNCTIONS];
  __local int flag, cells[LOCAL_CELLS];
  if (ITEM == 0)
    for (int f = 0; f < FUNCTIONS; ++f) book[f] = 0;
  grid_enter(s);
  ulong since = ticks();
  int repeats = 0;
  for (int at = first_stage; at < last_stage;) {
    __global const int *stage = program + at * STAGE_WORDS;
    const int first = stage[STAGE_FIRST], count = stage[STAGE_COUNT];
    __global const int *records = program + first;
    switch (stage[STAGE_OP]) {
      case OP_PMATRICES:
        pmatrices_stage(&called, records, count, WORKER_SIZE);
        mark(book, &since, FN_PMATRICES);
        break;
      case OWN_OP:
        own_stage(s, records, count, stage[STAGE_AUX], own_stack, terms, counts, lanes, cells, book,
                  &since);
        break;
      case OP_REDUCE:
        if (stage[STAGE_AUX] == 0)
          reduce_stage(&called, first, count, strided, WORKER_SIZE, at);
        else
          reduce_residues(&called, first, count, stage[STAGE_AUX], WORKER_SIZE, at);
        mark(book, &since, FN_OPTIMISE);
        break;
      case OP_OPTIMISE:
        optimise_stage(&called, records, count, stage[STAGE_AUX], WORKER_SIZE);
        mark(book, &since, FN_OPTIMISE);
        break;
      case OP_REPEAT:
        if (repeats < count && any_active(s, stage[STAGE_AUX], WORKER_SIZE, &flag)) {
          ++repeats;
          at = first;
          continue;
        }
        break;
      default:
        if (ITEM == 0) report_fault(s, FAULT_UNKNOWN_OP, at);
    }
    ++at;
    if (at < last_stage && stage[STAGE_OP] != OP_REPEAT) {
      if (!grid_barrier(s, at, &flag)) break;
      mark(book, &since, FN_BARRIER);
    }
  }
  if (ITEM == 0)
    for (int f = 0; f < FUNCTIONS; ++f)
      marks[MARK_BOOKS + get_group_id(0) * FUNCTIONS + f] += book[f];
  grid_leave(s);
}

#endif
