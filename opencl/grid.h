// The grid as one machine: a barrier over all work-groups, and a clock.
#ifndef GRID_H
#define GRID_H

#include "session.h"

#ifdef __NV_CL_C_VERSION
// The stages that all workers have are calls, not copies: with everything inlined into the loop
// over stages, NVIDIA's compiler (driver 580) skipped the stage after the first.
#define STAGE_FUNCTION static __attribute__((noinline))
#define DEVICE_FENCE() __asm__ volatile("fence.acq_rel.gpu;" ::: "memory")
#define HAS_CLOCK 1
static inline ulong ticks(void) {
  ulong now;
  __asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));  // nanoseconds
  return now;
}
#else
#define STAGE_FUNCTION static inline
#define DEVICE_FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#ifdef __clang__
#define HAS_CLOCK 1
static inline ulong ticks(void) {
  return __builtin_readcyclecounter();
}
#else
#define HAS_CLOCK 0
static inline ulong ticks(void) {
  return 0;
}
#endif
#endif

// Waits for every work-group of the launch, which must all be resident. Gives up after
// SPIN_LIMIT polls and reports a fault: it never hangs.
static inline bool grid_barrier(const plf_t *s, int stage, __local int *failed) {
  const uint groups = GROUPS;
  if (groups == 1) {
    sync_group(CLK_GLOBAL_MEM_FENCE);
    return true;
  }
  sync_group(CLK_GLOBAL_MEM_FENCE);
  if (ITEM == 0) {
    DEVICE_FENCE();
    const uint ticket = atomic_inc((volatile __global uint *)s->sync + SYNC_ARRIVED);
    const uint target = (ticket / groups + 1) * groups;
    uint polls = 0;
    while (((volatile __global uint *)s->sync)[SYNC_ARRIVED] < target && polls < SPIN_LIMIT)
      ++polls;
    DEVICE_FENCE();
    *failed = polls >= SPIN_LIMIT;
    if (*failed) report_fault(s, FAULT_BARRIER, stage);
  }
  sync_group(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
  return !*failed;
}

// The first work-group to come starts the launch's clock.
static inline void grid_enter(const plf_t *s) {
  if (ITEM == 0 && atomic_inc((volatile __global uint *)s->sync + SYNC_ENTERED) == 0)
    s->marks[MARK_STARTED] = ticks();
}

// The last one to leave stops it, and takes the counters back for the next launch.
static inline void grid_leave(const plf_t *s) {
  const uint others = GROUPS - 1;
  if (ITEM == 0 && atomic_inc((volatile __global uint *)s->sync + SYNC_LEFT) == others) {
    s->marks[MARK_ELAPSED] += ticks() - s->marks[MARK_STARTED];
    for (int word = 0; word < SYNC_WORDS; ++word) s->sync[word] = 0;
  }
}

// The next job for a work-group, which takes them one by one as it gets done with others: for jobs
// of uneven length. Begins with ahead = GROUP; the one after it is asked for beforehand.
// A launch has one stage at most that shares its jobs like this.
static inline uint next_job(const plf_t *s, uint *ahead, __local int *cell) {
  if (ITEM == 0) {
    *cell = *ahead;
    *ahead = GROUPS + atomic_inc((volatile __global uint *)s->sync + SYNC_TAKEN);
  }
  sync_group(CLK_LOCAL_MEM_FENCE);
  return *cell;
}

// Charges the ticks since the last mark to a function; one work-item a group keeps the book.
static inline void mark(__local ulong *marks, ulong *since, int function) {
  if (!HAS_CLOCK || ITEM != 0) return;
  const ulong now = ticks();
  marks[function] += now - *since;
  *since = now;
}

// True once a group of lengths moves no more: its sums stand as they are.
static inline bool is_settled(const plf_t *s, int group) {
  return group != NO_CELL && group < s->controls && control_of(s, group)[CONTROL_ACTIVE] == 0;
}

// True while any group of branch lengths still moves.
static inline bool any_active(const plf_t *s, int count, int group_size, __local int *active) {
  if (ITEM == 0) *active = 0;
  sync_group(CLK_LOCAL_MEM_FENCE);
  for (int g = ITEM; g < count; g += group_size)
    if (control_of(s, g)[CONTROL_ACTIVE] != 0) *active = 1;
  sync_group(CLK_LOCAL_MEM_FENCE);
  return *active;
}

#endif
