// Starting trees by parsimony, in three kernels; what they compute is what
// mltree/tree/reference_parsimony.py does with NumPy, to the last tie: all numbers are whole.
//   grow    stepwise addition, a tree a work-group
//   renew   all sets of a tree, and its changes: a work-group has some words of them
//   walk    the best target of a pruned subtree, one a work-group at a time

#include "fitch.h"

#define MOST_ITEMS 256

// Lets two half-edges lead to each other.
static inline void lead(const tree_t *t, int one, int other) {
  t->twin[one] = other;
  t->twin[other] = one;
}

// Of the edges that cost a new tip least, the one that its draw picks: number draw * count / 2^32.
static inline int cheapest_edge(const tree_t *t, int tip, uint draw, int edges,
                                __global const int *near, __global int *costs, __local int *counts,
                                __local int *least) {
  __global const ulong *third = behind(t, 3 * tip);
  if (ITEM == 0) *least = INT_MAX;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int e = ITEM; e < edges; e += ITEMS) {
    __global const ulong *a = behind(t, near[e]), *b = behind(t, t->twin[near[e]]);
    int sum = 0;
    for (int w = 0; w < t->words; ++w) sum += cost(t, a, b, third, w);
    costs[e] = sum;
    atomic_min(least, sum);
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
static inline void spread(const tree_t *t, int one, int other, __global int *waves, int size,
                          __local int *count, __local int *differs) {
  __global int *wave = waves, *further = waves + size;
  const int team = ITEM / TEAM, lane = ITEM % TEAM;
  if (ITEM == 0) wave[0] = one, wave[1] = other;
  for (int here = 2; here > 0;) {
    if (ITEM == 0) *count = 0;
    for (int first = 0; first < here; first += TEAMS) {
      const int n = first + team;
      if (lane == 0) differs[team] = 0;
      barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
      if (n < here && remake(t, wave[n], lane, TEAM)) differs[team] = 1;
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

// Stepwise addition. orders [trees][T]: tips as they come; draws [trees][T]: of the tip that comes
// then. near [trees][2T - 3]: a half-edge of every edge; costs [trees][2T - 3], waves [trees][2][2T
// - 3]: room.
__kernel void grow(TREE_ARGUMENTS, __global const int *orders, __global const uint *draws,
                   __global int *near, __global int *costs, __global int *waves) {
  __local int counts[MOST_ITEMS], count, least;
  const int k = get_group_id(0), most_edges = 2 * tips - 3;
  const tree_t tree = TREE(k), *t = &tree;
  orders += (size_t)k * tips, draws += (size_t)k * tips;
  near += (size_t)k * most_edges, costs += (size_t)k * most_edges;
  waves += (size_t)k * 2 * most_edges;
  int node = 3 * tips, edges = 3;
  if (ITEM == 0)
    for (int n = 0; n < 3; ++n) {
      lead(t, node + n, 3 * orders[n]);
      near[n] = node + n;
    }
  barrier(CLK_GLOBAL_MEM_FENCE);
  for (int n = 0; n < 3; ++n) remake(t, node + n, ITEM, ITEMS);
  barrier(CLK_GLOBAL_MEM_FENCE);
  for (int step = 3; step < tips; ++step) {
    const int tip = orders[step];
    const int edge = cheapest_edge(t, tip, draws[step], edges, near, costs, counts, &least);
    const int here = near[edge], far = t->twin[here];
    node += 3;
    // Until now the edge's ends saw each other.
    for (int w = ITEM; w < t->words; w += ITEMS) FOR_PLANES(t, w, at) {
        own_set(t, node)[at] = behind(t, far)[at];
        own_set(t, node + 1)[at] = behind(t, here)[at];
      }
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (ITEM == 0) {
      lead(t, here, node);
      lead(t, node + 1, far);
      lead(t, node + 2, 3 * tip);
      near[edges] = node + 1;
      near[edges + 1] = node + 2;
    }
    edges += 2;
    barrier(CLK_GLOBAL_MEM_FENCE);
    remake(t, node + 2, ITEM, ITEMS);
    spread(t, node, node + 1, waves, most_edges, &count, counts);
  }
}

// Makes all sets of some trees. which [m]: the trees; facing [m][T - 2]: their half-edges that face
// tip 0, nearest first. Work-group (m, slice) makes `span` words; changes [m][slices]: its sum.
// heights [trees][half-edges]: room; longest [m]: the greatest of them.
__kernel void renew(TREE_ARGUMENTS, __global const int *which, __global const int *facing,
                    __global int *changes, __global int *heights, __global int *longest, int span) {
  __local int sums[3];
  const int m = get_group_id(0), slice = get_group_id(1), inner = tips - 2;
  const tree_t tree = TREE(which[m]), *t = &tree;
  facing += (size_t)m * inner;
  heights += (size_t)which[m] * all_halves(tips);
  const int begin = slice * span, end = min(words, begin + span);
  int turn, sum = 0, most = 0;
  start_sums(sums, &turn);
  for (int n = inner - 1; n >= 0; --n) {
    const int h = facing[n];
    sum += make(t, h, next(h), next(next(h)), begin, end, heights);
  }
  for (int w = begin + ITEM; w < end; w += ITEMS)
    sum += (int)popcount(apart(t, behind(t, 0), behind(t, t->twin[0]), w)) * t->weight[w];
  for (int n = 0; n < inner; ++n) {
    const int h = facing[n], one = next(h), other = next(one);
    make(t, one, h, other, begin, end, heights);
    make(t, other, h, one, begin, end, heights);
    most = max(most, max(heights[h], max(heights[one], heights[other])));
  }
  sum = group_sum(sums, &turn, sum);
  if (ITEM == 0) {
    changes[(size_t)m * get_num_groups(1) + slice] = sum;
    longest[m] = most;
  }
}

// The best target so far: the most gain, then the nearest, then the first half-edge.
typedef struct {
  int gain, depth, target;
} best_t;

static inline void take_better(best_t *best, int gain, int depth, int target) {
  if (gain < best->gain || gain <= 0) return;
  if (gain == best->gain && depth > best->depth) return;
  if (gain == best->gain && depth == best->depth && target > best->target) return;
  *best = (best_t){gain, depth, target};
}

// Tries subtrees on all branches around. prunes [n]: half-edges by which subtrees hang, numbered
// over all trees; cuts [n]: a walk ends where the subtree would cost more than here by more. near
// [groups][levels][size], at [groups][levels]: room for the longest walk. found [n][2]: target in
// its tree, or none | gain.
__kernel void walk(TREE_ARGUMENTS, __global const int *prunes, __global const int *cuts, int count,
                   __global ulong *near, __global int *at, int levels, __global int *found) {
  __local int sums[3];
  near += (size_t)get_group_id(0) * levels * size;
  at += (size_t)get_group_id(0) * levels;
  int turn;
  start_sums(sums, &turn);
  for (int n = get_group_id(0); n < count; n += get_num_groups(0)) {
    const int k = prunes[n] / all_halves(tips), prune = prunes[n] % all_halves(tips);
    const tree_t tree = TREE(k), *t = &tree;
    const int left = t->twin[next(prune)], right = t->twin[next(next(prune))];
    __global const ulong *subtree = behind(t, t->twin[prune]);
    int own = 0;
    for (int w = ITEM; w < words; w += ITEMS)
      own += cost(t, behind(t, left), behind(t, right), subtree, w);
    const int here = group_sum(sums, &turn, own), most = here + cuts[n];
    best_t best = {0, INT_MAX, NONE};
    for (int side = 0; side < 2; ++side) {
      const int start = side == 0 ? left : right;
      if (!is_inner(t, start)) continue;
      __global const ulong *back = behind(t, side == 0 ? right : left);
      int level = 0, came = start, target = next(start);
      at[0] = start;
      while (level > 0 || target != came) {
        if (target == came) {  // both ways are done: back across the edge, and on to the next
          target = next(t->twin[came]);
          came = at[--level];
          continue;
        }
        // Across an edge, with the set of all that lies behind it but the subtree.
        const int beside = next(target) == came ? next(came) : next(target);
        const int ahead = t->twin[target];
        __global const ulong *a = level == 0 ? back : near + (size_t)(level - 1) * size;
        __global const ulong *b = behind(t, t->twin[beside]), *far = behind(t, ahead);
        __global ulong *mine = near + (size_t)level * size;
        own = 0;
        for (int w = ITEM; w < words; w += ITEMS) {
          join(t, a, b, apart(t, a, b, w), mine, w);
          own += cost(t, mine, far, subtree, w);
        }
        const int price = group_sum(sums, &turn, own);
        take_better(&best, here - price, level, target);
        if (price <= most && is_inner(t, ahead)) {
          came = ahead;
          target = next(ahead);
          at[++level] = ahead;
        } else
          target = next(target);
      }
    }
    if (ITEM == 0) {
      found[2 * n] = best.target;
      found[2 * n + 1] = best.gain;
    }
  }
}
