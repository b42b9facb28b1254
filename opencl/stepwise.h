// How a growing tree finds the best edge for a tip, and keeps its sets: the steps of `grow` in
// parsimony.cl. The sets of its edges are kept too, word by word with edge beside edge, so that a
// CPU's vectors and neighbouring work-items of a GPU read them side by side.
#ifndef STEPWISE_H
#define STEPWISE_H

#include "fitch.h"

#ifndef EDGES
#error "-DEDGES: edges that a work-item tries a tip on side by side; 8 on CPUs, else 1"
#endif

#if EDGES == 1
typedef ulong words_t;  // of EDGES edges
#define LOAD(words) (*(words))
#define STORE(sums, costs) (*(costs) = (int)(sums))
#define EVERY(test) (test)
#else
typedef ulong8 words_t;
#define LOAD(words) vload8(0, words)
#define STORE(sums, costs) vstore8(convert_int8(sums), 0, costs)
#define EVERY(test) all(test)
#endif

#define MOST_ITEMS 256

// The sets of all edges of a growing tree, edge beside edge: word `at` of edge e is
// sets[at * stride + e].
typedef struct {
  __global ulong *sets;
  __global int *near;  // [2T - 3]: a half-edge of every edge
  __global int *edge;  // the edge of every half-edge
  int stride;
} edges_t;

// Lets two half-edges lead to each other, over an edge.
static inline void link(const tree_t *t, const edges_t *edges, int one, int other, int edge) {
  t->twin[one] = other;
  t->twin[other] = one;
  edges->edge[one] = edges->edge[other] = edge;
  edges->near[edge] = one;
}

// Makes the set of a half-edge's edge, a work-item's words of it, as in `remake`.
static inline void remake_edge(const tree_t *t, const edges_t *edges, int h, int lane, int lanes) {
  __global const ulong *a = behind(t, h), *b = behind(t, t->twin[h]);
  __global ulong *sets = edges->sets + edges->edge[h];
  for (int w = lane; w < t->words; w += lanes) {
    const ulong changed = apart(t, a, b, w);
    FOR_PLANES(t, w, at)
    sets[(size_t)at * edges->stride] = (a[at] & b[at]) | ((a[at] | b[at]) & changed);
  }
}

// Of the edges that cost a new tip least, the one that its draw picks: number draw * count / 2^32.
// costs [stride]: room. Edges that cost more already in their first words are left there.
static inline int cheapest_edge(const tree_t *t, const edges_t *all_edges, int tip, uint draw,
                                int edges, __global int *costs, __local int *counts,
                                __local int *least) {
  __global const ulong *third = behind(t, 3 * tip);
  if (ITEM == 0) *least = INT_MAX;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int e = ITEM * EDGES; e < edges; e += ITEMS * EDGES) {
    const ulong most = (ulong)atomic_or(least, 0);  // whatever the others are at
    words_t sum = 0;
    for (int w = 0; w < t->words; ++w) {
      words_t common = 0;
      FOR_PLANES(t, w, at)
      common |= LOAD(all_edges->sets + (size_t)at * all_edges->stride + e) & third[at];
      sum += popcount(~common) * t->weight[w];
      if (w % 4 == 3 && EVERY(sum > most)) break;
    }
    STORE(sum, costs + e);
    for (int n = e; n < min(edges, e + EDGES); ++n)
      if (costs[n] < (int)most) atomic_min(least, costs[n]);
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  const int share = (edges + ITEMS - 1) / ITEMS, first = min(edges, ITEM * share);
  const int end = min(edges, first + share), wanted = *least;
  int own = 0;
  for (int e = first; e < end; ++e) own += costs[e] == wanted;
  counts[ITEM] = own;
  barrier(CLK_LOCAL_MEM_FENCE);
  int before = 0, all = 0;
  for (int n = 0; n < ITEMS; ++n) {
    before += n < ITEM ? counts[n] : 0;
    all += counts[n];
  }
  const int chosen = (int)mul_hi(draw, (uint)all) - before;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (0 <= chosen && chosen < own)
    for (int e = first, met = 0; e < end; ++e)
      if (costs[e] == wanted && met++ == chosen) *least = e;
  barrier(CLK_LOCAL_MEM_FENCE);
  return *least;
}

#define TEAM min(ITEMS, 32)
#define TEAMS (ITEMS / TEAM)

// Makes sets again outwards from two half-edges, for as long as it makes a difference: what is as
// far away is made side by side, a set a team of work-items. waves [2][size]: room.
static inline void spread(const tree_t *t, const edges_t *edges, int one, int other,
                          __global int *waves, int size, __local int *count, __local int *differs) {
  __global int *wave = waves, *further = waves + size;
  const int team = ITEM / TEAM, lane = ITEM % TEAM;
  if (ITEM == 0) wave[0] = one, wave[1] = other;
  for (int here = 2; here > 0;) {
    if (ITEM == 0) *count = 0;
    for (int first = 0; first < here; first += TEAMS) {
      const int n = first + team;
      if (lane == 0) differs[team] = 0;
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
      if (n < here && remake(t, wave[n], lane, TEAM)) {
        remake_edge(t, edges, wave[n], lane, TEAM);
        differs[team] = 1;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      const int across = n < here ? t->twin[wave[n]] : 0;
      if (lane == 0 && n < here && differs[team] && is_inner(t, across)) {
        const int place = atomic_add(count, 2);
        further[place] = next(across);
        further[place + 1] = next(next(across));
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    here = *count;
    __global int *behind_us = wave;
    wave = further, further = behind_us;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}

#endif
