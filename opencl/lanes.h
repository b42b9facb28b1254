// The lane type. A lane holds WIDTH patterns in a vector: on a CPU the whole block, on a GPU one,
// two or four of a block that many lanes share. It is a work-item, or STATE_ITEMS of them that have
// a share of the states each. The rest is written once.
#ifndef LANES_H
#define LANES_H

#include "build.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#if SINGLE
typedef float real;
typedef float2 real_pair;
typedef float4 real_quad __attribute__((aligned(4)));  // wherever they begin
#else
typedef double real;
typedef double2 real_pair;
typedef double4 real_quad __attribute__((aligned(8)));
#endif
#if FP64
typedef double acc;  // sums, branch lengths, eigen systems
#else
typedef float acc;
#endif

#if WIDTH > 1
#define VECTOR(type) JOIN(type, WIDTH)
#if SINGLE
typedef VECTOR(float) real_v;
#else
typedef VECTOR(double) real_v;
#endif
#if FP64
typedef VECTOR(double) acc_v;
#define TO_ACC(x) JOIN(convert_double, WIDTH)(x)
#else
typedef VECTOR(float) acc_v;
#define TO_ACC(x) JOIN(convert_float, WIDTH)(x)
#endif
typedef VECTOR(int) count_v;
typedef VECTOR(ushort) stored_count_v;
typedef VECTOR(uchar) code_v;
#if SINGLE
#define TO_REAL(x) JOIN(convert_float, WIDTH)(x)
#else
#define TO_REAL(x) JOIN(convert_double, WIDTH)(x)
#endif
#define TO_COUNT(x) JOIN(convert_int, WIDTH)(x)
#define TO_STORED(x) JOIN(convert_ushort, WIDTH)(x)
#define ONES(mask) (-JOIN(convert_int, WIDTH)(mask))
#if LANES > 1
#define ANY(mask) any(mask)
#else
#define ANY(mask) any_lane(JOIN(convert_char, WIDTH)(mask))
#endif
#else
#define VECTOR(type) type
typedef real real_v;
typedef acc acc_v;
typedef int count_v;
typedef ushort stored_count_v;
typedef uchar code_v;
#define TO_ACC(x) ((acc)(x))
#define TO_REAL(x) ((real)(x))
#define TO_COUNT(x) ((int)(x))
#define TO_STORED(x) ((ushort)(x))
#define ONES(mask) (mask)
#define ANY(mask) (mask)
#endif

#if SEATS == 1
#define SEAT 0
#else
#define SEAT ((int)get_local_id(0))
#endif
#define STATE_ITEM (SEAT % STATE_ITEMS)
#define COLUMN (SEAT / STATE_ITEMS)
#define LANE (COLUMN % LANES)

// The state that a work-item holds as its i-th. Behind the last one vectors are 0, and what they
// are multiplied with there is the last one's.
#if STATE_ITEMS == 1
#define STATE(i) (i)
#define IS_STATE(i) true
#define READ_STATE(i) (i)
#else
#define STATE(i) ((i) * STATE_ITEMS + STATE_ITEM)
#define IS_STATE(i) (((i) + 1) * STATE_ITEMS <= STATES || STATE(i) < STATES)
#define READ_STATE(i) (IS_STATE(i) ? STATE(i) : STATES - 1)
#endif

#if CATEGORY_ITEMS == 1
#define CATEGORY_FIRST 0
#else
#define CATEGORY_FIRST ((int)get_local_id(1))
#endif
#define FOR_CATEGORY(k) for (int k = CATEGORY_FIRST; k < CATEGORIES; k += CATEGORY_ITEMS)
// Categories that a CPU takes through many blocks before the others: those of a mixture's matrices
// do not fit its nearest caches.
#define CATEGORIES_AT_ONCE (LANES == 1 && CATEGORIES % 4 == 0 ? 4 : CATEGORIES)
#define FOR_CATEGORY_FROM(first, k) \
  for (int k = (first) + CATEGORY_FIRST; k < (first) + CATEGORIES_AT_ONCE; k += CATEGORY_ITEMS)

#if WIDTH > 1
// any() of a mask, without the call that PoCL makes of it.
static inline bool any_lane(VECTOR(char) mask) {
#if WIDTH == 2
  return as_short(mask) != 0;
#elif WIDTH == 4
  return as_int(mask) != 0;
#elif WIDTH == 8
  return as_long(mask) != 0;
#else
  const long2 halves = as_long2(mask);
  return (halves.x | halves.y) != 0;
#endif
}
#endif

// Functions of a block's vectors are always inlined on CPUs: a call would spill them.
#if LANES == 1
#define VECTOR_FUNCTION static inline __attribute__((always_inline))
#else
#define VECTOR_FUNCTION static inline
#endif

// Loops over states; over the terms of a matrix product's sums; over SUMS of them side by side.
// Unrolled where vectors must stay in registers: an index known only at run time puts them in
// memory. On CPUs PoCL leaves loops rolled, and 20 vectors do not fit its registers anyway.
#define UNROLLED(i, count) _Pragma("unroll") for (int i = 0; i < (count); ++i)
#define ROLLED(i, count) for (int i = 0; i < (count); ++i)
#define SUMS (STATES <= 8 ? STATES : STATES == 20 ? 10 : WIDTH <= 4 ? 8 : 4)
#define SUMS_MET (STATES <= 8 ? STATES : STATES == 20 ? 5 : WIDTH <= 4 ? 4 : 2)
#if HELD <= (LANES == 1 ? 8 : 32)
#define EACH(i, count) UNROLLED(i, count)
#else
#define EACH(i, count) ROLLED(i, count)
#endif
#define FOR_STATE(i) EACH(i, HELD)
#define FOR_TERM(j) EACH(j, STATES)
#define FOR_PAIR(j) EACH(j, STATES / 2)
// Over tiles of TILE states that a product leaves together, and over the states of one; its r-th is
// the OF_TILE(t, r)-th that the work-item holds.
#define FOR_TILE(t) EACH(t, (HELD + TILE - 1) / TILE)
#define OF_TILE(t, r) ((t) * TILE + (r))
#define FOR_OF_TILE(t, r) EACH(r, TILE) if (HELD % TILE == 0 || OF_TILE(t, r) < HELD)
#define FOR_SUM(r) UNROLLED(r, SUMS)
#define FOR_SUM_MET(r) UNROLLED(r, SUMS_MET)

// Whether a work-item is a work-group: then what runs the stages (worker.h) is told its number.
#define LONE (SEATS * CATEGORY_ITEMS * ROWS == 1)
#if LONE
#define ROW 0
#define GROUP (s->group)
#define GROUPS (s->groups)
#else
#define ROW get_local_id(2)
#define GROUP get_group_id(0)
#define GROUPS get_num_groups(0)
#endif

// The work-item of a column that sums up what all of them have.
#define SUMS_UP (CATEGORY_FIRST == 0 && STATE_ITEM == 0)

// Position of this work-item in its row, and in its work-group.
#define MEMBER (CATEGORY_FIRST * SEATS + SEAT)
#define ITEM ((int)(ROW * TEAM) + MEMBER)

// The barrier of a work-group; a work-item that is alone has nothing to wait for.
#if LANES * CATEGORY_ITEMS == 1
#define sync_group(fences)
#else
#define sync_group(fences) barrier(fences)
#endif

#define LN_2 0.693147180559945309417

// 2^(exponent - EXPONENT_BIAS), from its bits; 0 for an exponent of 0.
#if FP64 && WIDTH > 1
#define EXPONENT_BIAS 1023
#define POWER_OF_TWO(exponent) JOIN(as_double, WIDTH)(JOIN(convert_long, WIDTH)(exponent) << 52)
#elif FP64
#define EXPONENT_BIAS 1023
#define POWER_OF_TWO(exponent) as_double((long)(exponent) << 52)
#elif WIDTH > 1
#define EXPONENT_BIAS 127
#define POWER_OF_TWO(exponent) JOIN(as_float, WIDTH)((exponent) << 23)
#else
#define EXPONENT_BIAS 127
#define POWER_OF_TWO(exponent) as_float((exponent) << 23)
#endif

// Scaling by exact powers of two: a CLA whose states all fall below 2^-bits is multiplied by
// 2^bits and its count grows by one.
#if SINGLE
#define SCALE_BITS SCALE_BITS_SINGLE
#define SCALE_UP 0x1p32f
#define SCALE_DOWN 0x1p-32f
#else
#define SCALE_BITS SCALE_BITS_DOUBLE
#define SCALE_UP 0x1p256
#define SCALE_DOWN 0x1p-256
#endif

#endif
