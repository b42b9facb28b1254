// A chain: a tree that hangs from tip 0, or has a root (ROOTED), its numbers (CHAIN_...), CLAs and
// P matrices. Where there is a root, lnL is that of the tree without it: both branches of the
// root's children have the length of the two together, and either child is what lies above the
// other. A work-group has a chain to itself, or a team of them where there are many patterns; all
// work-items take the same decisions from the same sums. CLAs are made and read by the same
// work-items, so that only numbers, P matrices and sums need a barrier.
#ifndef CHAIN_H
#define CHAIN_H

#include "grid.h"
#include "operand.h"
#include "philox.h"
#include "pmatrices.h"

typedef struct {
  const plf_t *s;
  __global const int *record;
  __global acc *words;
  __local real_v *terms;
  __local count_v *counts;
  __local acc_v *lanes;
  int tips, nodes, parts, model, weights;
  int sets, set;  // sets of branch lengths, of every part or one for all; the one at hand
  int first_part, end_part;     // parts at hand, of the chain's
  int start_block, last_block;  // blocks at hand
  int first_block, block_step;  // this work-group's blocks: ROWS of them at a time
  int team, member;             // work-groups of the chain, and this one's number
  int turn;                     // sums of the team so far
  int side;  // which of two places what is below nodes has, where there is a root
  uint sweep;
  acc lnl, heat;
} chain_t;

#if PARTED && !ROOTED
#define SETS(c) ((c)->sets)
#else
#define SETS(c) 1
#endif
#define SET_WORDS(c) ((c)->nodes + SPARE_LENGTHS)
#define LENGTHS_OF(c, number) ((c)->words + CHAIN_WORDS + (number) * SET_WORDS(c))
#define CHAIN_LENGTHS(c) LENGTHS_OF(c, SETS(c) == 1 ? 0 : (c)->set)
#define CHAIN_PARENTS(c) LENGTHS_OF(c, SETS(c))
#define FOR_SET(c, number) for (int number = 0; number < SETS(c); ++number)
#define CHAIN_LEFTS(c) (CHAIN_PARENTS(c) + (c)->nodes)
#define CHAIN_RIGHTS(c) (CHAIN_LEFTS(c) + (c)->nodes)
#define CHAIN_SPARES(c) (CHAIN_RIGHTS(c) + (c)->nodes)
#define TEAM_SUMS(c) (CHAIN_SPARES(c) + (c)->nodes)

// The work-item that writes numbers for the whole team.
#define LEADS(c) (ITEM == 0 && (c)->member == 0)

static inline void settle_group(void) {
  sync_group(CLK_GLOBAL_MEM_FENCE | CLK_LOCAL_MEM_FENCE);
}

// Waits for the whole team, all of which must be resident: see grid_barrier.
CHAIN_FUNCTION void settle(const chain_t *c) {
  settle_group();
#if LANES > 1
  if (c->team == 1) return;
  if (ITEM == 0) {
    volatile __global uint *arrived = (volatile __global uint *)(c->words + CHAIN_TICKET);
    DEVICE_FENCE();
    const uint target = (atomic_inc(arrived) / c->team + 1) * c->team;
    uint polls = 0;
    while (*arrived < target && polls < SPIN_LIMIT) ++polls;
    DEVICE_FENCE();
    if (polls >= SPIN_LIMIT) report_fault(c->s, FAULT_BARRIER, 0);
  }
  settle_group();
#endif
}

// A record's chain, as one of so many work-groups that share it.
static inline chain_t chain_of(const plf_t *s, __global const int *record, int team, int nodes) {
  const chunks_t of = case_chunks(s, record[SWEEP_CASE]);
  chain_t chain;
  chain.s = s;
  chain.record = record;
  chain.words = LENGTHS_AT(s) + record[SWEEP_STATE];
  chain.tips = record[SWEEP_TIPS];
  chain.nodes = nodes;
  chain.parts = PARTED ? case_of(s, record[SWEEP_CASE])[CASE_PARTS] : 1;
  chain.model = record[SWEEP_MODEL];
  chain.weights = record[SWEEP_WEIGHTS];
  chain.team = team;
  chain.member = GROUP % team;
  chain.turn = 0;
  chain.side = 0;
  chain.first_block = chunk_begin(s, of.first) + chain.member * ROWS;
  chain.block_step = team * ROWS;
  chain.last_block = chunk_end(s, of.end - 1);
  chain.start_block = chunk_begin(s, of.first);
  chain.sets = max((int)chain.words[CHAIN_SETS], 1);
  chain.set = 0;
  chain.first_part = 0;
  chain.end_part = chain.parts;
  chain.sweep = (uint)chain.words[CHAIN_SWEEP];
  chain.heat = chain.words[CHAIN_HEAT];
  return chain;
}

// Turns to some blocks. Work-items keep those that they have of all, whatever is at hand.
static inline void take_blocks(chain_t *c, chunks_t of) {
  const int first = chunk_begin(c->s, case_chunks(c->s, c->record[SWEEP_CASE]).first);
  c->start_block = chunk_begin(c->s, of.first);
  c->last_block = chunk_end(c->s, of.end - 1);
  const int rounds = (c->start_block - first) / c->block_step;
  c->first_block = first + c->member * ROWS + rounds * c->block_step;
}

// Turns to a set of lengths and the part that has it, and back to all parts.
static inline void take_set(chain_t *c, int number) {
  if (SETS(c) == 1) return;
  const int part = case_of(c->s, c->record[SWEEP_CASE])[CASE_FIRST_PART] + number;
  c->set = c->first_part = number;
  c->end_part = number + 1;
  take_blocks(c, chunks_of(c->s, part, 1));
}

static inline void take_all(chain_t *c) {
  if (SETS(c) == 1) return;
  c->set = c->first_part = 0;
  c->end_part = c->parts;
  take_blocks(c, case_chunks(c->s, c->record[SWEEP_CASE]));
}

// Leaves what the host is told of a chain.
static inline void leave_chain(const chain_t *c) {
  settle(c);
  if (!LEADS(c)) return;
  c->words[CHAIN_LNL] = c->lnl;
  c->words[CHAIN_SWEEP] = c->sweep;
}

static inline acc length_of(const chain_t *c, int v) {
  return CHAIN_LENGTHS(c)[v];
}

static inline int parent_of(const chain_t *c, int v) {
  return (int)CHAIN_PARENTS(c)[v];
}

static inline int left_of(const chain_t *c, int v) {
  return (int)CHAIN_LEFTS(c)[v];
}

static inline int right_of(const chain_t *c, int v) {
  return (int)CHAIN_RIGHTS(c)[v];
}

static inline int sibling_of(const chain_t *c, int v) {
  const int u = parent_of(c, v), left = left_of(c, u);
  return left == v ? right_of(c, u) : left;
}

// What is below a node, as an operand, and what is above it.
#if ROOTED
// What is above a tip lies between the two places of inner nodes: one has what is below them, the
// other what is above, until the next tree whose branches have all changed is tried there.
static inline int inner_of(const chain_t *c, int v, int side) {
  return c->record[SWEEP_SLOT] + v - c->tips + side * (2 * c->tips - 1);
}

static inline int up_of(const chain_t *c, int v) {
  return v < c->tips ? ~v : inner_of(c, v, c->side);
}

static inline int down_of(const chain_t *c, int v) {
  if (parent_of(c, parent_of(c, v)) < 0) return up_of(c, sibling_of(c, v));
  return v < c->tips ? c->record[SWEEP_SLOT] + c->tips - 1 + v : inner_of(c, v, !c->side);
}

// The P matrices of the branch above a node; behind those of both sides those of spare lengths.
static inline int matrix_of(const chain_t *c, int v) {
  return c->record[SWEEP_P] + (v + c->nodes * (v < c->nodes ? c->side : 1)) * c->parts;
}
#else
static inline int up_of(const chain_t *c, int v) {
  return v < c->tips ? ~v : c->record[SWEEP_SLOT] + v - c->tips;
}

static inline int down_of(const chain_t *c, int v) {
  return parent_of(c, v) == 0 ? ~0 : c->record[SWEEP_SLOT] + c->tips - 2 + v;
}

// The P matrices of the branch above a node; behind the nodes those of spare lengths.
static inline int matrix_of(const chain_t *c, int v) {
  return c->record[SWEEP_P] + v * c->parts;
}
#endif

// Puts `after` where `before` hangs from u. For one work-item.
static inline void hang(const chain_t *c, int u, int before, int after) {
  if (left_of(c, u) == before)
    CHAIN_LEFTS(c)[u] = after;
  else
    CHAIN_RIGHTS(c)[u] = after;
  CHAIN_PARENTS(c)[after] = u;
}

static inline stream_t stream_of(const chain_t *c, int move, int number) {
  __global const acc *words = c->words;
  const uint seed = (uint)words[CHAIN_SEED_LOW] | (uint)words[CHAIN_SEED_HIGH] << 16;
  const stream_t stream = {
      {(uint)words[CHAIN_REPLICA], c->sweep, (uint)move * MOVE_STRIDE + number, 0},
      {seed, (uint)words[CHAIN_RUN]}};
  return stream;
}

static inline void count_move(const chain_t *c, int move, bool taken) {
  if (!LEADS(c)) return;
  c->words[CHAIN_TRIED + move] += 1;
  if (taken) c->words[CHAIN_TAKEN + move] += 1;
}

// P matrices of the lengths from `first` on, for the parts at hand: each member makes all of a few,
// or its share of many.
CHAIN_FUNCTION void make_matrices(const chain_t *c, int first, int count) {
  const bool shared = count > SPARE_LENGTHS;
  const int members = shared ? c->team : 1, member = shared ? c->member : 0;
  const int jobs_at_once = GROUP_SIZE(ROWS) / MATRIX_ITEMS;
  const int shares = (STATES + MATRIX_ROWS - 1) / MATRIX_ROWS, of_length = shares * CATEGORIES;
  const int parts = c->end_part - c->first_part, jobs = count * parts * of_length;
  const int from = c->words + CHAIN_WORDS - LENGTHS_AT(c->s);
  const int stride = SETS(c) == 1 ? 0 : SET_WORDS(c);
  const int first_part = PARTED ? case_of(c->s, c->record[SWEEP_CASE])[CASE_FIRST_PART] : 0;
  settle_group();
  for (int job = ITEM / MATRIX_ITEMS + member * jobs_at_once; job < jobs;
       job += members * jobs_at_once) {
    const int matrix = job / of_length, share = job % of_length;
    const int v = first + matrix / parts, of_chain = c->first_part + matrix % parts;
    const int part = first_part + of_chain;
    pmatrix_fill(c->s, matrix_of(c, v) + part, from + v + stride * of_chain, c->model + part,
                 share / shares, share % shares * MATRIX_ROWS);
  }
  if (shared)
    settle(c);
  else
    settle_group();
}

// Every member writes the same length and P matrices for itself: sums of the whole team have come
// since others have read the ones before.
CHAIN_FUNCTION void change_length(const chain_t *c, int v, acc length) {
  settle_group();
  if (ITEM == 0) CHAIN_LENGTHS(c)[v] = length;
  make_matrices(c, v, 1);
}

// cla[dst] = (P[left_p] left) * (P[right_p] right)
CHAIN_FUNCTION void join(const chain_t *c, int dst, int left, int left_p, int right, int right_p) {
  const plf_t *s = c->s;
  for (int block = c->first_block + ROW; block < c->last_block; block += c->block_step) {
    if (block < c->start_block) continue;
    const code_v left_codes = operand_codes(s, left, block);
    const code_v right_codes = operand_codes(s, right, block);
    FOR_CATEGORY(k) {
      real_v x[HELD], left_x[HELD], right_x[HELD];
      count_v count = fetch(s, left, left_codes, left_p, block, k, left_x);
      count += fetch(s, right, right_codes, right_p, block, k, right_x);
      cross(s, left, left_p, block, k, left_x, x);
      cross_times(s, right, right_p, block, k, right_x, x);
      count = rescale(x, count);
      slot_store(s, dst, block, k, x, count);
    }
  }
}

static inline void make_up(const chain_t *c, int v) {
  const int left = left_of(c, v), right = right_of(c, v);
  join(c, up_of(c, v), up_of(c, left), matrix_of(c, left), up_of(c, right), matrix_of(c, right));
}

static inline void make_down(const chain_t *c, int v) {
  const int u = parent_of(c, v), other = sibling_of(c, v);
  join(c, down_of(c, v), up_of(c, other), matrix_of(c, other), down_of(c, u), matrix_of(c, u));
}

#endif
