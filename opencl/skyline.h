// A population whose size is constant over groups of the tree's own events (Drummond et al. 2005):
// its prior of heights, and the groups. mltree/program/ops/time_trees.py has the same in NumPy.
#ifndef SKYLINE_H
#define SKYLINE_H

#include "time_tree.h"

static inline int tree_kind(const chain_t *c) {
  return (int)TIME(c)[TIME_TREE_KIND];
}

static inline bool is_skyline(const chain_t *c) {
  return tree_kind(c) == TREE_PRIOR_SKYLINE;
}

// Time that pairs wait before a node, since the node before it, times their number; and the inner
// nodes before it.
typedef struct {
  acc pairs_time;
  int events;
} wait_t;

// The same of node i if node v were at another height.
static inline wait_t wait_before(const chain_t *c, int i, int v, acc height) {
  const acc own = i == v ? height : height_of(c, i);
  int lineages = 0;
  wait_t found = {0, 0};
  acc last = own;
  for (int j = 0; j < c->nodes; ++j) {
    const acc other = j == v ? height : height_of(c, j);
    if (!(other < own || (other == own && j < i))) continue;
    last = lineages == 0 && found.events == 0 ? other : fmax(last, other);
    lineages += j < c->tips ? 1 : -1;
    found.events += j < c->tips ? 0 : 1;
  }
  found.pairs_time = (acc)lineages * (lineages - 1) / 2 * (own - last);
  return found;
}

// The group of a skyline that the next event is in after so many.
static inline int group_after(const chain_t *c, int events) {
  const int groups = cells_of(c);
  __global const acc *sizes = CELLS(c) + 2 * groups;
  int g = 0;
  for (int left = events; g + 1 < groups && left >= (int)sizes[g]; ++g) left -= (int)sizes[g];
  return g;
}

static inline acc skyline_factor(const chain_t *c, int i, wait_t wait) {
  const acc size = CELLS(c)[group_after(c, wait.events)];
  return -wait.pairs_time * exp(-size) - (i < c->tips ? 0 : size);
}

// ln of a skyline's prior of heights.
CHAIN_FUNCTION acc skyline_log_prior(const chain_t *c) {
  SUM_OVER(c, sum, i, c->nodes, skyline_factor(c, i, wait_before(c, i, -1, 0)))
  return sum;
}

// The change of a node's factor if node v were at another height.
static inline acc skyline_change(const chain_t *c, int i, int v, acc height) {
  return skyline_factor(c, i, wait_before(c, i, v, height)) -
         skyline_factor(c, i, wait_before(c, i, -1, 0));
}

// The change of all factors: of v's own, of those that it passes, and of the next one above.
CHAIN_FUNCTION acc change_of_skyline(const chain_t *c, int v, acc height) {
  const acc before = height_of(c, v), low = fmin(before, height), high = fmax(before, height);
  acc next = INFINITY;
  for (int j = 0; j < c->nodes; ++j)
    if (j != v && height_of(c, j) > high) next = fmin(next, height_of(c, j));
  SUM_OVER(c, sum, i, c->nodes,
           i == v || (height_of(c, i) >= low && height_of(c, i) <= next)
               ? skyline_change(c, i, v, height)
               : 0)
  return sum;
}

// What pairs wait before each node, and in each group of a skyline: among the spare numbers and
// those before a move.
static inline void sum_groups(const chain_t *c) {
  const int groups = cells_of(c);
  for (int g = 0; g < groups; ++g) {
    SUM_OVER(c, waiting, i, c->nodes,
             group_after(c, (int)BEFORE(c)[i]) == g ? CHAIN_SPARES(c)[i] : 0)
    if (LEADS(c)) CELLS(c)[groups + g] = waiting;
  }
  settle(c);
}

static inline void count_groups(const chain_t *c) {
  settle(c);
  for (int i = ITEM; i < c->nodes && c->member == 0; i += GROUP_SIZE(ROWS)) {
    const wait_t wait = wait_before(c, i, -1, 0);
    CHAIN_SPARES(c)[i] = wait.pairs_time;
    BEFORE(c)[i] = wait.events;
  }
  settle(c);
  sum_groups(c);
}

// ln of the factors of all groups.
static inline acc groups_log_density(const chain_t *c) {
  const int groups = cells_of(c);
  __global const acc *sizes = CELLS(c);
  acc sum = 0;
  for (int g = 0; g < groups; ++g)
    sum -= sizes[groups + g] * exp(-sizes[g]) + sizes[2 * groups + g] * sizes[g];
  return sum;
}

static inline void move_event(const chain_t *c, int from, int to) {
  __global acc *sizes = CELLS(c) + 2 * cells_of(c);
  settle(c);
  if (LEADS(c)) {
    sizes[from] -= 1;
    sizes[to] += 1;
  }
  settle(c);
  sum_groups(c);
}

// An event goes from one of a skyline's groups to another; all ways to group them are alike.
static inline void walk_groups(chain_t *c, int round) {
  const int groups = cells_of(c);
  for (int n = 0; groups > 1 && n < groups; ++n) {
    stream_t stream = time_stream(c, TIME_MOVE_PRECISION, round * groups + n);
    const int from = min((int)(uniform(&stream) * groups), groups - 1);
    int to = min((int)(uniform(&stream) * (groups - 1)), groups - 2);
    to += to >= from;
    bool taken = CELLS(c)[2 * groups + from] > 1;
    if (taken) {
      const acc before = groups_log_density(c);
      move_event(c, from, to);
      taken = is_accepted(&stream, groups_log_density(c) - before);
      if (!taken) move_event(c, to, from);
    }
    count_time_move(c, TIME_MOVE_PRECISION, taken);
  }
}

#endif
