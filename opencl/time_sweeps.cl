// Sweeps of chains over trees with a time axis: heights, rates of branches, a clock, priors of
// trees. A team of work-groups has a chain.
// A sweep walks the scalars, scales heights, rates and clock, regrafts subtrees, tours the tree,
// where it chooses among the interchanges around every inner branch and draws every height and
// rate. mltree/program/ops/time_sweeps.py has the same in NumPy, and the ratio of each move.
#define ROOTED 1

#include "grid.h"
#include "time_regraft.h"

#define OWN_OP OP_TIME_SWEEPS
#define WORKER_ROWS ROWS
#define LOCAL_TERMS (TERMS * ROWS * SHARES * LANES)
#define LOCAL_LANES TOTAL_LANES
#define LOCAL_CELLS 1

// Everything above node v, from the top down: the way there is kept among the spare numbers.
static inline void look_down(const chain_t *c, int v) {
  const int root = root_of(c);
  settle(c);
  if (LEADS(c))
    for (int u = parent_of(c, v), below = v; u != root; below = u, u = parent_of(c, u))
      CHAIN_SPARES(c)[u] = below;
  settle(c);
  int top = v;
  while (parent_of(c, top) != root) top = parent_of(c, top);
  for (int u = top; u != v;) {
    u = (int)CHAIN_SPARES(c)[u];
    make_down(c, u);
  }
}

// What is above a tip of a known date says nothing where all branches have one rate.
static inline void descend(const chain_t *c, int v) {
  const bool is_idle =
      v < c->tips && clock_kind(c) == CLOCK_STRICT && EARLIEST(c)[v] == LATEST(c)[v];
  if (!is_idle && parent_of(c, v) != root_of(c)) make_down(c, v);
}

// Twice as many steps along the tree's outline as it has branches, from a place that all branches
// and both directions are equally likely to be: the outline is a circle, and which step follows
// depends on the tree alone, so that the posterior stays what it is. Heights are drawn on the way
// down, rates and the root's height on the way up.
static inline void tour(chain_t *c) {
  stream_t stream = time_stream(c, TIME_MOVE_TOUR, 0);
  const int edges = c->nodes - 1, places = 2 * edges;
  const int place = min((int)(uniform(&stream) * places), places - 1);
  int v = place % edges;
  bool descends = place < edges;
  v += v >= root_of(c);
  look_down(c, v);
  for (int step = 0; step < places; ++step) {
    const int u = parent_of(c, v);
    if (descends) {
      if (v >= c->tips) {
        interchange(c, v, step);
        keep_distance(c, v, step);
      }
      move_height(c, v, step);
      descends = v >= c->tips;
      if (descends) descend(c, v = left_of(c, v));
      continue;
    }
    draw_rate(c, v, step);
    if (v == left_of(c, u)) {
      descend(c, v = right_of(c, u));
      descends = true;
    } else if (parent_of(c, u) < 0) {
      move_root(c, step);
      keep_distance(c, u, step);
      v = left_of(c, u);
      descends = true;
    } else {
      make_up(c, v = u);
    }
  }
  renew_up(c, parent_of(c, v));
}

static inline void sweep(chain_t *c, int regrafts) {
  walk_priors(c);
  if (clock_kind(c) != CLOCK_STRICT) draw_rate(c, root_of(c), c->nodes * 4);
  change_pace(c);
  stretch(c);
  scale_all(c, TIME_MOVE_CLOCK);
  scale_all(c, TIME_MOVE_TREE);
  scale_all(c, TIME_MOVE_UP_DOWN);
  for (int r = 0; r < regrafts; ++r) {
    regraft(c, r, true);
    regraft(c, r, false);
  }
  tour(c);
}

static inline void own_stage(const plf_t *s, __global const int *records, int count, int aux,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const int team = records[SWEEP_TEAM], teams = GROUPS / team;
  for (int job = GROUP / team; job < count && GROUP < teams * team; job += teams) {
    chain_t chain = chain_of(s, records + job * SWEEP_WORDS, team, 2 * records[SWEEP_TIPS] - 1);
    if (chain.words[CHAIN_PROPOSAL] == RESTS) continue;
    chain.terms = terms;
    chain.counts = counts;
    chain.lanes = lanes;
    find_calibrated(&chain);
    renew_warped(&chain);
    decide_model(&chain);
    for (int n = 0; n < chain.record[SWEEP_SWEEPS]; ++n) {
      sweep(&chain, chain.record[SWEEP_REGRAFTS]);
      ++chain.sweep;
    }
    leave_chain(&chain);
    const int left = left_of(&chain, root_of(&chain));
    probe(&chain, left, down_of(&chain, left));
    mark(book, since, FN_SWEEP);
  }
}

#include "worker.h"
