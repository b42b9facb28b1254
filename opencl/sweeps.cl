// Sweeps of chains: Markov chain Monte Carlo over trees and branch lengths, a team of work-groups a
// chain, most often of one.
// A sweep scales all lengths, regrafts subtrees, and tours the tree, where it chooses among the
// interchanges around every inner branch and draws every length. mltree/program/ops/sweeps.py has
// the same in NumPy, and the ratio of each move.
#define ROOTED 0

#include "grid.h"
#include "regraft.h"

#define OWN_OP OP_SWEEPS
#define WORKER_ROWS ROWS
#define LOCAL_TERMS (TERMS * ROWS * SHARES * LANES)
#define LOCAL_LANES TOTAL_LANES
#define LOCAL_CELLS 1

// Everything above node v, from the top down: the way there is kept among the spare numbers.
static inline void look_down(const chain_t *c, int v) {
  settle(c);
  if (LEADS(c))
    for (int u = parent_of(c, v), below = v; u != 0; below = u, u = parent_of(c, u))
      CHAIN_SPARES(c)[u] = below;
  settle(c);
  for (int u = left_of(c, 0); u != v;) {
    u = (int)CHAIN_SPARES(c)[u];
    make_down(c, u);
  }
}

// Twice as many steps along the tree's outline as it has branches, from a place that all branches
// and both directions are equally likely to be: the outline is a circle, and which step follows
// depends on the tree alone, so that the posterior stays what it is.
static inline void tour(chain_t *c) {
  stream_t stream = stream_of(c, MOVE_START, 0);
  const int edges = c->nodes - 1, places = 2 * edges;
  const int place = min((int)(uniform(&stream) * places), places - 1);
  int v = 1 + place % edges;
  bool descends = place < edges;
  look_down(c, v);
  for (int step = 0; step < places; ++step) {
    const int u = parent_of(c, v);
    if (descends) {
      if (v >= c->tips && u != 0) interchange(c, v, step);
      draw_lengths(c, v, step);
      descends = v >= c->tips;
      if (descends) make_down(c, v = left_of(c, v));
    } else if (u == 0) {
      descends = true;
    } else if (v == left_of(c, u)) {
      make_down(c, v = right_of(c, u));
      descends = true;
    } else {
      make_up(c, v = u);
    }
  }
  renew_up(c, parent_of(c, v));
}

static inline void own_stage(const plf_t *s, __global const int *records, int count, int aux,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const int team = records[SWEEP_TEAM], teams = GROUPS / team;
  for (int job = GROUP / team; job < count && GROUP < teams * team; job += teams) {
    chain_t chain = chain_of(s, records + job * SWEEP_WORDS, team, 2 * records[SWEEP_TIPS] - 2);
    if (chain.words[CHAIN_PROPOSAL] == RESTS) continue;
    chain.terms = terms;
    chain.counts = counts;
    chain.lanes = lanes;
    decide_model(&chain);
    for (int n = 0; n < chain.record[SWEEP_SWEEPS]; ++n) {
      scale(&chain);
      for (int r = 0; r < chain.record[SWEEP_REGRAFTS]; ++r) regraft(&chain, r);
      total_up(&chain);
      tour(&chain);
      ++chain.sweep;
    }
    leave_chain(&chain);
    probe(&chain, left_of(&chain, 0), ~0);
    mark(book, since, FN_SWEEP);
  }
}

#include "worker.h"
