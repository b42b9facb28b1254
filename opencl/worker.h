// The worker: one launch runs the stages first_stage ... last_stage - 1 of a program, with a
// barrier over the grid between them. A front file (sites.cl, walk.cl, ...) defines
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
#define WORK_GROUP __attribute__((reqd_work_group_size(SEATS, CATEGORY_ITEMS, WORKER_ROWS)))
#endif
#define STRIDED_SUMS (WORKER_SIZE < REDUCE_WIDTH ? WORKER_SIZE * REDUCE_WIDTH : WORKER_SIZE)
#define AIM_SUMS (WORKER_SIZE > 1 ? AIM_TERMS * REDUCE_WIDTH : 1)
#define STRIDED (STRIDED_SUMS > AIM_SUMS ? STRIDED_SUMS : AIM_SUMS)

#define WORKER_LOCALS                          \
  __local real_v terms[LOCAL_TERMS];           \
  __local count_v counts[LOCAL_TERMS / TERMS]; \
  __local acc_v lanes[LOCAL_LANES];            \
  __local acc strided[STRIDED];                \
  __local ulong book[FUNCTIONS];               \
  __local int flag[1], cells[LOCAL_CELLS];

// PoCL compiles a kernel's code three times, for as many entries. So where it may, the kernel calls
// what runs the stages: half the time of a build. A static function crashes it (LLVM 14, IPSCCP).
#if LONE
__attribute__((noinline)) void run_stages(
    WORKER_BUFFERS WORKER_NUMBERS size_t group, size_t groups, __local real_v *restrict own_stack,
    __local real_v *restrict terms, __local count_v *restrict counts, __local acc_v *restrict lanes,
    __local acc *restrict strided, __local ulong *restrict book, __local int *restrict flag,
    __local int *restrict cells, int first_stage, int last_stage) {
  const plf_t session = {SESSION_VALUES group, groups};
#else
__kernel WORK_GROUP void worker(WORKER_BUFFERS __local real_v *own_stack,
                                WORKER_NUMBERS int first_stage, int last_stage) {
  const plf_t session = {SESSION_VALUES};
  WORKER_LOCALS
#endif
  const plf_t *s = &session;
  const plf_t called = session;  // for calls, which take it from memory; the other stays out of it
  if (ITEM == 0)
    for (int f = 0; f < FUNCTIONS; ++f) book[f] = 0;
  grid_enter(s);
  ulong since = ticks();
  int repeats = 0;
  for (int at = first_stage; at < last_stage;) {
    __global const int *stage = program + at * STAGE_WORDS;
    const int first = stage[STAGE_FIRST], count = stage[STAGE_COUNT], aux = stage[STAGE_AUX];
    __global const int *records = program + first;
    switch (stage[STAGE_OP]) {
      case OP_PMATRICES:
        pmatrices_stage(&called, records, count, aux, WORKER_SIZE);
        mark(book, &since, FN_PMATRICES);
        break;
      case OWN_OP:
        own_stage(s, records, count, aux, own_stack, terms, counts, lanes, cells, book, &since);
        break;
      case OP_REDUCE:
        if (s->reduction_lanes == 0)
          reduce_stage(&called, records, count, aux, strided, WORKER_SIZE, at);
        else
          reduce_lanes(&called, records, count, aux, WORKER_SIZE, at);
        mark(book, &since, FN_OPTIMISE);
        break;
      case OP_OPTIMISE:
        optimise_stage(&called, records, count, aux, strided, WORKER_SIZE);
        mark(book, &since, FN_OPTIMISE);
        break;
      case OP_REPEAT:
        if (repeats < count && any_active(s, aux, WORKER_SIZE, flag)) {
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
      if (!grid_barrier(s, at, flag)) break;
      mark(book, &since, FN_BARRIER);
    }
  }
  if (ITEM == 0)
    for (int f = 0; f < FUNCTIONS; ++f) marks[MARK_BOOKS + GROUP * FUNCTIONS + f] += book[f];
  grid_leave(s);
}

#if LONE
__kernel WORK_GROUP void worker(WORKER_BUFFERS __local real_v *own_stack,
                                WORKER_NUMBERS int first_stage, int last_stage) {
  WORKER_LOCALS
  run_stages(SESSION_VALUES get_group_id(0), get_num_groups(0), own_stack, terms, counts, lanes,
             strided, book, flag, cells, first_stage, last_stage);
}
#endif

#endif
