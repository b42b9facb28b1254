// A work-group's own CLAs while it walks a tree depth first: the first levels in local memory, the
// others in its part of a global buffer. [level][category][state][seat]; behind the states of a
// category stands its scaling count.
#ifndef STACK_H
#define STACK_H

#include "operand.h"

#define STACK_ROW ((HELD + 1) * SEATS)

static inline size_t stack_at(int level, int k, int state) {
  return ((size_t)level * CATEGORIES + k) * STACK_ROW + state * SEATS + SEAT;
}

static inline __global real_v *stack_spilled(const plf_t *s) {
  const size_t levels = s->stack_levels - s->local_levels;
  return (__global real_v *)s->stack + GROUP * levels * CATEGORIES * STACK_ROW;
}

VECTOR_FUNCTION void stack_store(const plf_t *s, __local real_v *own, int level, int k,
                                 const real_v x[HELD], count_v count) {
  if (level < s->local_levels) {
    FOR_STATE(i) own[stack_at(level, k, i)] = x[i];
    own[stack_at(level, k, HELD)] = TO_REAL(count);
  } else {
    __global real_v *spilled = stack_spilled(s);
    FOR_STATE(i) spilled[stack_at(level - s->local_levels, k, i)] = x[i];
    spilled[stack_at(level - s->local_levels, k, HELD)] = TO_REAL(count);
  }
}

VECTOR_FUNCTION count_v stack_load(const plf_t *s, __local const real_v *own, int level, int k,
                                   real_v x[HELD]) {
  if (level < s->local_levels) {
    FOR_STATE(i) x[i] = own[stack_at(level, k, i)];
    return TO_COUNT(own[stack_at(level, k, HELD)]);
  }
  __global const real_v *spilled = stack_spilled(s);
  FOR_STATE(i) x[i] = spilled[stack_at(level - s->local_levels, k, i)];
  return TO_COUNT(spilled[stack_at(level - s->local_levels, k, HELD)]);
}

#endif
