// A sample's branches from its tips; rows of entries, panels and lists of a tile's columns.
#ifndef UNIFRAC_ROWS_H
#define UNIFRAC_ROWS_H

#define NONE (-1)
#define RARE(number) (-2 - (number))  // numbers of branches: common 0, 1, ...; rare -2, -3, ...

// A sample's tips, and the branches above them in postorder: a branch ends where the next tip is
// not below it, so that each is met once, with all that the sample has there.

typedef struct {
  long first, tip, stop;  // entries of the sample's tips: first, present, behind the last
  int branch;
} walk_t;

walk_t walk_of(const long first, const long stop, __global const int *tip,
               __global const int *branch_of_tip) {
  const walk_t walk = {first, first, stop, branch_of_tip[tip[first]]};
  return walk;
}

// To the next branch; false behind the root.
bool next(walk_t *walk, __global const int *tip, __global const int *branch_of_tip,
          __global const int *parent, __global const int *last) {
  const int above = parent[walk->branch];
  if (above == NONE) return false;
  const bool is_last = walk->tip + 1 == walk->stop;
  if (is_last || last[above] < tip[walk->tip + 1]) {
    walk->branch = above;
  } else {
    walk->tip += 1;
    walk->branch = branch_of_tip[tip[walk->tip]];
  }
  return true;
}

// Counts below the present branch.
long below(const walk_t *walk, __global const int *tip, __global const long *before,
           __global const int *first) {
  const int least = first[walk->branch];
  long low = walk->first, high = walk->tip;
  while (low < high) {
    const long middle = (low + high) / 2;
    if (tip[middle] < least) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return before[walk->tip + 1] - before[low];
}

#define TREE                                                                                    \
  __global const long *indptr, __global const int *tip, __global const long *before,            \
      __global const int *branch_of_tip, __global const int *parent, __global const int *first, \
      __global const int *last, __global const double *lengths

// Branches of every sample, and samples of every branch.
__kernel void touch(const long samples, TREE, __global int *touched, __global int *prevalence) {
  const long sample = get_global_id(0);
  if (sample >= samples) return;
  walk_t walk = walk_of(indptr[sample], indptr[sample + 1], tip, branch_of_tip);
  int count = 0;
  do {
    if (lengths[walk.branch] > 0.0) {
      count += 1;
      atomic_inc(prevalence + walk.branch);
    }
  } while (next(&walk, tip, branch_of_tip, parent, last));
  touched[sample] = count;
}

// The term of a sample under a branch, of plain metrics.
long value_of(const double length, const long count, const double divisor, const int presence) {
  return convert_long_rte(presence ? length : length * ((double)count / divisor));
}

// Rows of entries: what a plain metric sums, or counts. `alone`: sums of a sample's terms.
__kernel void fill(const long samples, TREE, __global const int *number,
                   __global const double *divisors, const int plain, const int presence,
                   __global const long *row, __global int *branch, __global long *value,
                   __global int *common, __global long *alone) {
  const long sample = get_global_id(0);
  if (sample >= samples) return;
  walk_t walk = walk_of(indptr[sample], indptr[sample + 1], tip, branch_of_tip);
  long front = row[sample], back = row[sample + 1], total = 0;
  do {
    const int name = number[walk.branch];
    if (name != NONE) {
      const long count = below(&walk, tip, before, first);
      const long term =
          plain ? value_of(lengths[walk.branch], count, divisors[sample], presence) : count;
      const long place = name >= 0 ? front++ : --back;
      branch[place] = name >= 0 ? name : RARE(name);
      value[place] = term;
      total += term;
    }
  } while (next(&walk, tip, branch_of_tip, parent, last));
  common[sample] = (int)(front - row[sample]);
  alone[sample] = total;
}

// Panels: of samples from `start` on.

__kernel void spread(const long start, const long columns, const long stride,
                     __global const long *row, __global const int *common,
                     __global const int *branch, __global const long *value,
                     __global sum_t *panel) {
  const long column = get_global_id(0);
  if (column >= columns) return;
  const long begin = row[start + column], end = begin + common[start + column];
  for (long entry = begin; entry < end; ++entry)
    panel[branch[entry] * stride + column] = (sum_t)value[entry];
}

__kernel void count(const long start, const long columns, const int spans, const int width,
                    __global const long *row, __global const int *common,
                    __global const int *branch, __global int *sizes) {
  const long column = get_global_id(0);
  if (column >= columns) return;
  const long begin = row[start + column] + common[start + column], end = row[start + column + 1];
  for (long entry = begin; entry < end; ++entry)
    atomic_inc(sizes + (long)branch[entry] * spans + column / width);
}

__kernel void list(const long start, const long columns, const int spans, const int width,
                   __global const long *row, __global const int *common, __global const int *branch,
                   __global const long *value, __global int *cursor, __global int *list_column,
                   __global long *list_value) {
  const long column = get_global_id(0);
  if (column >= columns) return;
  const long begin = row[start + column] + common[start + column], end = row[start + column + 1];
  for (long entry = begin; entry < end; ++entry) {
    const int place = atomic_inc(cursor + (long)branch[entry] * spans + column / width);
    list_column[place] = (int)(column % width);
    list_value[place] = value[entry];
  }
}

#endif
