// Plain metrics: sums of minima over shared branches, and distances from them.
#ifndef UNIFRAC_MINIMA_H
#define UNIFRAC_MINIMA_H

#if ITEMS == 1
// Where the entries of every chunk of common branches begin in a row, [sample][chunk].
__kernel void cut(const long samples, const int chunks, __global const long *row,
                  __global const int *common, __global const int *branch, __global int *cuts) {
  const long sample = get_global_id(0);
  if (sample >= samples) return;
  __global const int *names = branch + row[sample];
  __global int *own = cuts + sample * (chunks + 1);
  int entry = 0;
  for (int chunk = 0; chunk <= chunks; ++chunk) {
    while (entry < common[sample] && names[entry] < chunk * CHUNK) ++entry;
    own[chunk] = entry;
  }
}

// Sums of minima over common branches: rows of a tile from `start` on, ROWS by BLOCK a work-item.
// A row's own entries alone are looked up in the panel.
__kernel void dense(const long start, const long rows, const long stride, const int chunks,
                    __global const long *row, __global const int *restrict cuts,
                    __global const int *restrict branch, __global const long *restrict value,
                    __global const sum_t *restrict panel, __global sum_t *restrict shared) {
  const long column = (long)get_group_id(0) * BLOCK;
  const long first = (long)get_group_id(1) * ROWS;
  lanes_t sums[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r) {
    for (int v = 0; v < VECTORS; ++v) sums[r][v] = 0;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int r = 0; r < ROWS; ++r) {
      const long sample = start + min(first + r, rows - 1);
      __global const int *own_cuts = cuts + sample * (chunks + 1) + chunk;
      const long stop = row[sample] + own_cuts[1];
      lanes_t own[VECTORS];  // in registers, which takes plain loads and no loop
      for (int v = 0; v < VECTORS; ++v) own[v] = sums[r][v];
      for (long entry = row[sample] + own_cuts[0]; entry < stop; ++entry) {
        const lanes_t term = (lanes_t)(sum_t)value[entry];
        __global const lanes_t *others =
            (__global const lanes_t *)(panel + branch[entry] * stride + column);
#define ADD(v) own[v] += others[v] < term ? others[v] : term
        ADD(0), ADD(1), ADD(2), ADD(3), ADD(4), ADD(5), ADD(6), ADD(7);
      }
      for (int v = 0; v < VECTORS; ++v) sums[r][v] = own[v];
    }
  }
  for (int r = 0; r < ROWS; ++r) {
    if (first + r >= rows) break;
    __global lanes_t *here = (__global lanes_t *)(shared + (first + r) * stride + column);
    for (int v = 0; v < VECTORS; ++v) here[v] = sums[r][v];
  }
}
#else
// Sums of minima over common branches, ROWS by ROWS a group: what a sample lacks is a 0 that costs
// as much as any other number, but rows and columns are read once for EACH of the other.
#define EACH (ROWS / 16)
#if ITEMS != 256
#error "a group is a square of 16 by 16 work-items"
#endif
__kernel void dense(const long rows, const long row_stride, const long stride, const int branches,
                    __global const sum_t *restrict row_panel, __global const sum_t *restrict panel,
                    __global sum_t *restrict shared) {
  const int item = get_local_id(0), x = item % 16, y = item / 16;
  const long column = (long)get_group_id(0) * ROWS, first = (long)get_group_id(1) * ROWS;
  __local sum_t own[CHUNK * ROWS], others[CHUNK * ROWS];
  sum_t sums[EACH][EACH];
#pragma unroll
  for (int r = 0; r < EACH; ++r) {
#pragma unroll
    for (int c = 0; c < EACH; ++c) sums[r][c] = 0;
  }
  for (int low = 0; low < branches; low += CHUNK) {
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int place = item; place < CHUNK * ROWS; place += ITEMS) {
      const long b = low + place / ROWS, s = place % ROWS;
      own[place] = b < branches ? row_panel[b * row_stride + first + s] : 0;
      others[place] = b < branches ? panel[b * stride + column + s] : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 4
    for (int b = 0; b < CHUNK; ++b) {
      sum_t mine[EACH], other[EACH];
#pragma unroll
      for (int e = 0; e < EACH; ++e) {
        mine[e] = own[b * ROWS + e * 16 + y];
        other[e] = others[b * ROWS + e * 16 + x];
      }
#pragma unroll
      for (int r = 0; r < EACH; ++r) {
#pragma unroll
        for (int c = 0; c < EACH; ++c) sums[r][c] += min(mine[r], other[c]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < EACH; ++r) {
    const long place = first + r * 16 + y;
    if (place >= rows) continue;
#pragma unroll
    for (int c = 0; c < EACH; ++c) shared[place * stride + column + c * 16 + x] = sums[r][c];
  }
}
#endif

// The same over rare branches, added: a row and a span of columns a group.
__kernel void rare(const long start, const long stride, const int spans, const int width,
                   __global const long *row, __global const int *common,
                   __global const int *restrict branch, __global const long *restrict value,
                   __global const int *restrict starts, __global const int *restrict list_column,
                   __global const long *restrict list_value, __global sum_t *restrict shared) {
  const long sample = start + get_group_id(1);
  const int span = get_group_id(0);
  __global sum_t *sums = shared + (long)get_group_id(1) * stride + (long)span * width;
  const long begin = row[sample] + common[sample], end = row[sample + 1];
#if ITEMS > 1
  __local sum_t own[SPAN];
  for (int c = get_local_id(0); c < width; c += get_local_size(0)) own[c] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
#else
  __global sum_t *own = sums;
#endif
  for (long entry = begin; entry < end; ++entry) {
    const sum_t term = (sum_t)value[entry];
    const long list = (long)branch[entry] * spans + span;
    const int stop = starts[list + 1];
    for (int place = starts[list] + (int)get_local_id(0); place < stop;
         place += (int)get_local_size(0)) {
      const sum_t other = (sum_t)list_value[place];
      own[list_column[place]] += other < term ? other : term;
    }
#if ITEMS > 1
    barrier(CLK_LOCAL_MEM_FENCE);  // the next list may have the same columns
#endif
  }
#if ITEMS > 1
  for (int c = get_local_id(0); c < width; c += get_local_size(0)) sums[c] += own[c];
#endif
}

// Distances from sums; normalised where the unit is 0.
__kernel void finish(const long start, const long first_column, const long columns,
                     const long stride, const double unit, const int presence,
                     __global const long *alone, __global const sum_t *shared,
                     __global distance_t *distances) {
  const long column = get_global_id(0), r = get_global_id(1);
  if (column >= columns) return;
  const long both = alone[start + r] + alone[first_column + column];
  const long common = (long)shared[r * stride + column];
  const double apart = (double)(both - 2 * common);
  const double whole = (double)(presence ? both - common : both);
  const double ratio = whole > 0.0 ? apart / whole : 0.0;
  distances[r * columns + column] = (distance_t)(unit > 0.0 ? apart * unit : ratio);
}

#endif
