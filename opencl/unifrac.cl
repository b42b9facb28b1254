// UniFrac: sums over the branches that two samples share (mltree/diversity/unifrac.py has the
// formulae and the same in NumPy). Terms are integers, so that no order of summing changes a bit;
// nothing may be contracted on the way to them.
//
// A sample's entries lie in one row: those of common branches from its front, in postorder; those
// of rare ones from its back. Columns of a tile are a panel: of common branches the dense rows
// `panel` [branch][column], of rare ones lists of the columns that have them, a list a branch and
// span.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF

#if !defined(ITEMS) || !defined(ROWS) || !defined(CHUNK) || !defined(SPAN)
#error "-DITEMS: work-items of a group; -DROWS, -DCHUNK: of a block; -DSPAN: most columns of a list"
#endif
#if !defined(SHORT) || !defined(SINGLE) || !defined(PRESENCE) || !defined(ADJUSTED) || \
    !defined(POWER)
#error "-DSHORT: 32-bit sums; -DSINGLE: fp32 distances; -DPRESENCE, -DADJUSTED, -DPOWER: terms"
#endif

#if SHORT
typedef int sum_t;
typedef float distance_t;
#else
typedef long sum_t;
#if SINGLE
typedef float distance_t;
#else
typedef double distance_t;
#endif
#endif

#if ITEMS == 1  // a CPU's work-item has vectors of columns, a GPU's one column
#define VECTORS 8
#if SHORT
typedef int16 lanes_t;
#define WIDTH 16
#else
typedef long8 lanes_t;
#define WIDTH 8
#endif
typedef double8 real_t;
typedef long8 whole_t;
#define TERMS 8  // of a list, side by side
#define WHOLE convert_long8_rte
#define REAL convert_double8
#define EXPONENT(x) convert_long8_rte(x)
#else
#define VECTORS 1
#define WIDTH 1
#define LOAD(offset, pointer) (*(pointer))
#define STORE(value, offset, pointer) (*(pointer) = (value))
typedef sum_t lanes_t;
typedef double real_t;
typedef long whole_t;
#define TERMS 1
#define WHOLE convert_long_rte
#define REAL convert_double
#define EXPONENT(x) convert_long_rte(x)
#endif
#define BLOCK (VECTORS * WIDTH * ITEMS)  // columns of a group

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

// Sums of minima over common branches: rows of a tile from `start` on, ROWS by BLOCK a group.
__kernel void dense(const long start, const long rows, const long stride, const int branches,
                    const int chunks, __global const long *row, __global const int *restrict cuts,
                    __global const int *restrict branch, __global const long *restrict value,
                    __global const sum_t *restrict panel, __global sum_t *restrict shared) {
  const long column = (long)get_group_id(0) * BLOCK + get_local_id(0);
  const long first = (long)get_group_id(1) * ROWS;
  lanes_t sums[ROWS][VECTORS];
  for (int r = 0; r < ROWS; ++r) {
    for (int v = 0; v < VECTORS; ++v) sums[r][v] = 0;
  }
#if ITEMS > 1
  __local sum_t block[CHUNK * ITEMS];
#endif
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int low = chunk * CHUNK;
#if ITEMS > 1  // every work-item reads again what it wrote itself
    const int size = min(CHUNK, branches - low);
    for (int b = 0; b < size; ++b)
      block[b * ITEMS + get_local_id(0)] = panel[(low + b) * stride + column];
#pragma unroll
#endif
    for (int r = 0; r < ROWS; ++r) {
      const long sample = start + min(first + r, rows - 1);
      __global const int *own_cuts = cuts + sample * (chunks + 1) + chunk;
      const long stop = row[sample] + own_cuts[1];
#if ITEMS > 1
      for (long entry = row[sample] + own_cuts[0]; entry < stop; ++entry) {
        const sum_t term = (sum_t)value[entry];
        const sum_t other = block[(branch[entry] - low) * ITEMS + get_local_id(0)];
        sums[r][0] += other < term ? other : term;
      }
#else
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
#endif
    }
  }
#if ITEMS > 1
#pragma unroll
#endif
  for (int r = 0; r < ROWS; ++r) {
    if (first + r >= rows) break;
    __global lanes_t *here = (__global lanes_t *)(shared + (first + r) * stride + column);
    for (int v = 0; v < VECTORS; ++v) here[v] = sums[r][v];
  }
}

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

// The other metrics, of which terms are made for every pair.

#define ONE ((real_t)1.0)
#define ZERO ((real_t)0.0)

// Coefficients of log2 and of 2^x, as Python has them.
__constant double LOG_TERMS[] = {0.12545174268599682, 0.1373995277037108,  0.15186263588304877,
                                 0.16972882833987804, 0.19235933878519512, 0.2219530832136867,
                                 0.2623081892525388,  0.3205988979753252,  0.41219858311113244,
                                 0.5770780163555853,  0.9617966939259757,  2.8853900817779268};
__constant double EXP_TERMS[] = {
    3.132436707088427e-15,  6.778726354822543e-14,  1.3691488853904124e-12, 2.5678435993488196e-11,
    4.44553827187081e-10,   7.054911620801121e-09,  1.0178086009239696e-07, 1.3215486790144305e-06,
    1.5252733804059838e-05, 0.00015403530393381606, 0.0013333558146428441,  0.009618129107628477,
    0.055504108664821576,   0.2402265069591007,     0.6931471805599453,     1.0};

#if TERMS > 1
#define AS_WHOLE as_long8
#define AS_REAL as_double8
#else
#define AS_WHOLE as_long
#define AS_REAL as_double
#endif

// A product that no compiler can join with a sum, whatever it makes of FP_CONTRACT. `zero` is 0.
real_t product(const real_t one, const real_t two, const long zero) {
  return AS_REAL(AS_WHOLE(one * two) ^ zero);
}

// base^alpha, above zero: power() in mltree/diversity/unifrac.py.
real_t height_of(const real_t base, const double alpha, const long zero) {
#if PRESENCE || POWER == 0
  return ONE;
#elif POWER == 1
  return base;
#elif POWER == 2
  return sqrt(base);
#else
  // frexp by its bits: a mantissa in [1/2, 1) and a power of two.
  const whole_t bits = AS_WHOLE(base);
  real_t mantissa = AS_REAL((bits & 0x000FFFFFFFFFFFFFL) | 0x3FE0000000000000L);
  const real_t whole = REAL((bits >> 52) - 1022L);
  const real_t low = mantissa < 0.70710678118654757 ? ONE : ZERO;
  mantissa = mantissa + low * mantissa;
  const real_t t = (mantissa - 1.0) / (mantissa + 1.0);
  const real_t square = product(t, t, zero);
  real_t series = (real_t)LOG_TERMS[0];
  for (int k = 1; k < 12; ++k) series = product(series, square, zero) + LOG_TERMS[k];
  const real_t x = product((real_t)alpha, product(series, t, zero) + (whole - low), zero);
  const real_t integer = rint(x);
  const real_t fraction = x - integer;
  real_t value = (real_t)EXP_TERMS[0];
  for (int k = 1; k < 16; ++k) value = product(value, fraction, zero) + EXP_TERMS[k];
  return value * AS_REAL((EXPONENT(integer) + 1023L) << 52);
#endif
}

// The term of both samples: L (u_a + u_b)^alpha, adjusted for variance.
real_t weight_of(const double length, const real_t share, const double alpha, const real_t under,
                 const real_t whole, const long zero) {
  const real_t weight = length * height_of(share, alpha, zero);
#if ADJUSTED
  const real_t variance = sqrt(under * (whole - under));
  return variance > 0.0 ? weight / variance : ZERO;
#else
  return weight;
#endif
}

// Sums of terms of a sample alone, beside another with as many counts as `depths` has.
__kernel void solo(const long start, const long samples, const long n_depths,
                   __global const long *row, __global const int *branch, __global const long *value,
                   __global const double *divisors, __global const long *totals,
                   __global const double *depths, __global const double *branch_lengths,
                   const double alpha, const long zero, __global long *sums) {
  const long place = get_global_id(0), d = get_global_id(1);
  if (place >= samples) return;
  const long sample = start + place;
  const real_t whole = (real_t)((double)totals[sample] + depths[d]);
  long sum = 0;
  for (long entry = row[sample]; entry < row[sample + 1]; ++entry) {
    const real_t under = (real_t)(double)value[entry];
    const real_t share = under / divisors[sample];
    const whole_t term =
        WHOLE(weight_of(branch_lengths[branch[entry]], share, alpha, under, whole, zero));
#if TERMS > 1
    sum += term.s0;
#else
    sum += term;
#endif
  }
  sums[place * n_depths + d] = sum;
}

// What shared branches add to, or take from, the sums of either sample: a row and a span a group.
__kernel void general(const long start, const long first_column, const long columns,
                      const long stride, const int spans, const int width, __global const long *row,
                      __global const int *branch, __global const long *value,
                      __global const int *starts, __global const int *list_column,
                      __global const long *list_value, __global const double *divisors,
                      __global const long *totals, __global const double *branch_lengths,
                      const double alpha, const long zero, __global long *apart,
                      __global long *together) {
  const long r = get_group_id(1), sample = start + r;
  const int span = get_group_id(0);
  const long offset = r * stride + (long)span * width, shift = first_column + (long)span * width;
#if ITEMS > 1
  __local long above[SPAN], under_all[SPAN];
  for (int c = get_local_id(0); c < width; c += get_local_size(0)) above[c] = under_all[c] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
#else
  __global long *above = apart + offset, *under_all = together + offset;
  for (int c = 0; c < width; ++c) above[c] = under_all[c] = 0;
#endif
  const double total = (double)totals[sample];
  for (long entry = row[sample]; entry < row[sample + 1]; ++entry) {
    const double length = branch_lengths[branch[entry]];
    const real_t own_count = (real_t)(double)value[entry];
    const real_t own = own_count / divisors[sample];
    const long list = (long)branch[entry] * spans + span;
    const int stop = starts[list + 1];
    for (int place = starts[list] + (int)get_local_id(0) * TERMS; place < stop;
         place += (int)get_local_size(0) * TERMS) {
#if TERMS > 1
      real_t other_count, divider, whole;  // filled through pointers: vload8 is a call
      double *counts = (double *)&other_count, *dividers = (double *)&divider;
      double *wholes = (double *)&whole;
      for (int t = 0; t < TERMS; ++t) {
        const int at = min(place + t, stop - 1);
        const long other = shift + list_column[at];
        counts[t] = (double)list_value[at];
        dividers[t] = divisors[other];
        wholes[t] = total + (double)totals[other];
      }
      const real_t other = other_count / divider;
#else
      const long column = shift + list_column[place];
      const real_t other_count = (double)list_value[place];
      const real_t whole = total + (double)totals[column];
      const real_t other = other_count / divisors[column];
#endif
      const real_t both = own + other;
      const real_t weight = weight_of(length, both, alpha, own_count + other_count, whole, zero);
#if PRESENCE
      const real_t difference = ZERO;
#else
      const real_t difference = weight * (fabs(own - other) / both);
#endif
      const whole_t alone = WHOLE(weight_of(length, own, alpha, own_count, whole, zero)) +
                            WHOLE(weight_of(length, other, alpha, other_count, whole, zero));
      const whole_t one = WHOLE(difference) - alone, two = WHOLE(weight) - alone;
#if TERMS > 1
      const long *ones = (const long *)&one, *twos = (const long *)&two;
      for (int t = 0; t < TERMS && place + t < stop; ++t) {
        above[list_column[place + t]] += ones[t];
        under_all[list_column[place + t]] += twos[t];
      }
#else
      above[list_column[place]] += one;
      under_all[list_column[place]] += two;
#endif
    }
#if ITEMS > 1
    barrier(CLK_LOCAL_MEM_FENCE);  // the next list may have the same columns
#endif
  }
#if ITEMS > 1
  for (int c = get_local_id(0); c < width; c += get_local_size(0)) {
    apart[offset + c] = above[c];
    together[offset + c] = under_all[c];
  }
#endif
}

// `row_sums` [row][depth of a column], `column_sums` [column][depth of a row].
__kernel void finish_general(const long columns, const long stride, const double unit,
                             const long column_depths, const long row_depths,
                             __global const int *depth_of_column, __global const int *depth_of_row,
                             __global const long *row_sums, __global const long *column_sums,
                             __global const long *apart, __global const long *together,
                             __global distance_t *distances) {
  const long column = get_global_id(0), r = get_global_id(1);
  if (column >= columns) return;
  const long both = row_sums[r * column_depths + depth_of_column[column]] +
                    column_sums[column * row_depths + depth_of_row[r]];
  const double above = (double)(both + apart[r * stride + column]);
  const double whole = (double)(both + together[r * stride + column]);
  const double ratio = whole > 0.0 ? above / whole : 0.0;
  distances[r * columns + column] = (distance_t)(unit > 0.0 ? above * unit : ratio);
}
