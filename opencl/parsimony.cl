// Starting trees by parsimony, in three kernels; what they compute is what
// mltree/tree/parsimony.py does with NumPy, to the last tie: all numbers are whole.
//   grow    stepwise addition, a tree a work-group
//   renew   all sets of a tree, and its changes: a work-group has some words of them
//   walk    the best target of a pruned subtree, one a work-group at a time

#include "fitch.h"
#include "stepwise.h"

// Stepwise addition. orders [trees][T]: tips as they come; draws [trees][T]: of the tip that comes
// then. edge [trees][half-edges], near [trees][2T - 3]: see edges_t. Room: joined
// [trees][size][stride], costs [trees][stride], waves [trees][2][2T - 3].
__kernel void grow(TREE_ARGUMENTS, __global const int *orders, __global const uint *draws,
                   __global int *edge, __global int *near, __global ulong *joined,
                   __global int *costs, __global int *waves, int stride) {
  __local int counts[MOST_ITEMS], count, least;
  const int k = get_group_id(0), most_edges = 2 * tips - 3;
  const tree_t tree = TREE(k), *t = &tree;
  const edges_t kept = {joined + (size_t)k * size * stride, near + (size_t)k * most_edges,
                        edge + (size_t)k * all_halves(tips), stride};
  orders += (size_t)k * tips, draws += (size_t)k * tips;
  costs += (size_t)k * stride, waves += (size_t)k * 2 * most_edges;
  int node = 3 * tips, edges = 3;
  if (ITEM == 0)
    for (int n = 0; n < 3; ++n) link(t, &kept, node + n, 3 * orders[n], n);
  barrier(CLK_GLOBAL_MEM_FENCE);
  for (int n = 0; n < 3; ++n) {
    remake(t, node + n, ITEM, ITEMS);
    remake_edge(t, &kept, node + n, ITEM, ITEMS);
  }
  barrier(CLK_GLOBAL_MEM_FENCE);
  for (int step = 3; step < tips; ++step) {
    const int tip = orders[step];
    const int found = cheapest_edge(t, &kept, tip, draws[step], edges, costs, counts, &least);
    const int here = kept.near[found], far = t->twin[here];
    node += 3;
    // Until now the edge's ends saw each other.
    for (int w = ITEM; w < t->words; w += ITEMS) FOR_PLANES(t, w, at) {
        own_set(t, node)[at] = behind(t, far)[at];
        own_set(t, node + 1)[at] = behind(t, here)[at];
      }
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (ITEM == 0) {
      link(t, &kept, here, node, found);
      link(t, &kept, node + 1, far, edges);
      link(t, &kept, node + 2, 3 * tip, edges + 1);
    }
    edges += 2;
    barrier(CLK_GLOBAL_MEM_FENCE);
    remake(t, node + 2, ITEM, ITEMS);
    spread(t, &kept, node, node + 1, waves, most_edges, &count, counts);
    for (int n = 0; n < 3; ++n) remake_edge(t, &kept, node + n, ITEM, ITEMS);
    barrier(CLK_GLOBAL_MEM_FENCE);
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
