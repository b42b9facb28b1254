// Sets of states for Fitch parsimony, 64 sites a word, and trees of them (mltree/tree/fitch.py).
//
// A set is a row of `size` words, plane after plane; word w has bit-planes 0 ... while plane p has
// more than w words. Rows stand for the set behind every half-edge: those of the tips are given,
// those of inner half-edges 3T, 3T + 1, ... are made here. Trees stand side by side, half-edge h of
// tree k is k * 6(T - 1) + h.
//
// The work-items of a group share out the words of a row. Where they always do so in the same way,
// sets made from sets need no barrier; only sums over words do.
#ifndef FITCH_H
#define FITCH_H

#define ITEM ((int)get_local_id(0))
#define ITEMS ((int)get_local_size(0))
#define NONE (-1)

typedef struct {
  int tips;                        // T
  int words, size;                 // of sites; of all planes
  int planes;                      // of word 0, the most
  __global const int *plane;       // first word of each in a row | how many
  __global const int *weight;      // what a bit counts, by word
  __global const ulong *tip_sets;  // rows of the tips
  __global ulong *sets;            // rows of the inner half-edges
  __global int *twin;              // of all half-edges
} tree_t;

#define TREE_ARGUMENTS                                                                   \
  int tips, int words, int size, int planes, long tip_stride, __global const int *plane, \
      __global const int *weight, __global const ulong *tip_sets, __global ulong *sets,  \
      __global int *twin

// Tree k of those that stand side by side; they share the tips' sets where the stride is 0.
#define TREE(k)                                    \
  {tips,                                           \
   words,                                          \
   size,                                           \
   planes,                                         \
   plane,                                          \
   weight,                                         \
   tip_sets + (size_t)(k) * tip_stride,            \
   sets + (size_t)(k) * inner_halves(tips) * size, \
   twin + (size_t)(k) * all_halves(tips)}

static inline int all_halves(int tips) {
  return 6 * (tips - 1);
}
static inline int inner_halves(int tips) {
  return 3 * (tips - 2);
}
static inline int next(int h) {
  return h % 3 == 2 ? h - 2 : h + 1;
}
static inline bool is_inner(const tree_t *t, int h) {
  return h >= 3 * t->tips;
}

static inline __global const ulong *behind(const tree_t *t, int h) {
  return is_inner(t, h) ? t->sets + (size_t)(h - 3 * t->tips) * t->size
                        : t->tip_sets + (size_t)(h / 3) * t->size;
}

static inline __global ulong *own_set(const tree_t *t, int h) {
  return t->sets + (size_t)(h - 3 * t->tips) * t->size;
}

#define FOR_PLANES(t, w, at)                                                     \
  for (int p = 0, at; p < (t)->planes && (w) < (t)->plane[(t)->planes + p]; ++p) \
    if ((at = (t)->plane[p] + (w)), true)

// The sites of word w at which two sets have nothing in common: those that need a change.
static inline ulong apart(const tree_t *t, __global const ulong *a, __global const ulong *b,
                          int w) {
  ulong common = 0;
  FOR_PLANES(t, w, at) common |= a[at] & b[at];
  return ~common;
}

// Word w of a parent's set: what is common to its children's, or else all of both.
static inline void join(const tree_t *t, __global const ulong *a, __global const ulong *b,
                        ulong changed, __global ulong *parent, int w) {
  FOR_PLANES(t, w, at) parent[at] = (a[at] & b[at]) | ((a[at] | b[at]) & changed);
}

// The changes that a third set needs on the branch between two, in word w.
static inline int cost(const tree_t *t, __global const ulong *a, __global const ulong *b,
                       __global const ulong *third, int w) {
  const ulong changed = apart(t, a, b, w);
  ulong common = 0;
  FOR_PLANES(t, w, at) common |= ((a[at] & b[at]) | ((a[at] | b[at]) & changed)) & third[at];
  return (int)popcount(~common) * t->weight[w];
}

// Makes the set behind a half-edge from those across its siblings, a work-item's words of it, those
// that are `lane` modulo `lanes`; whether they were others.
static inline bool remake(const tree_t *t, int h, int lane, int lanes) {
  const int one = next(h), other = next(one);
  __global const ulong *a = behind(t, t->twin[one]), *b = behind(t, t->twin[other]);
  __global ulong *own = own_set(t, h);
  ulong differs = 0;
  for (int w = lane; w < t->words; w += lanes) {
    const ulong changed = apart(t, a, b, w);
    FOR_PLANES(t, w, at) {
      const ulong joined = (a[at] & b[at]) | ((a[at] | b[at]) & changed);
      differs |= own[at] ^ joined;
      own[at] = joined;
    }
  }
  return differs != 0;
}

// How many branches it is to the farthest tip behind a half-edge.
static inline int height(const tree_t *t, __global const int *heights, int h) {
  return is_inner(t, h) ? heights[h] : 0;
}

// Makes a half-edge's set, in words begin ... end - 1, from those across two others of its node;
// the work-item's share of the changes between them.
static inline int make(const tree_t *t, int h, int one, int other, int begin, int end,
                       __global int *heights) {
  const int left = t->twin[one], right = t->twin[other];
  __global const ulong *a = behind(t, left), *b = behind(t, right);
  int sum = 0;
  for (int w = begin + ITEM; w < end; w += ITEMS) {
    const ulong changed = apart(t, a, b, w);
    join(t, a, b, changed, own_set(t, h), w);
    sum += (int)popcount(changed) * t->weight[w];
  }
  heights[h] = 1 + max(height(t, heights, left), height(t, heights, right));
  return sum;
}

// Work-items' numbers added up. `sums` are three, for three calls in turn, so that one barrier is
// enough: the next call's is cleared while nobody can be at it.
static inline int group_sum(__local int *sums, int *turn, int own) {
  const int now = *turn, then = now == 2 ? 0 : now + 1;
  *turn = then;
  if (ITEM == 0) sums[then] = 0;
  if (own != 0) atomic_add(&sums[now], own);
  barrier(CLK_LOCAL_MEM_FENCE);
  return sums[now];
}

static inline void start_sums(__local int *sums, int *turn) {
  *turn = 0;
  if (ITEM == 0) sums[0] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
}

#endif
