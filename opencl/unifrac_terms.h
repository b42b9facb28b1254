// Generalised and variance-adjusted metrics: terms of every pair.
#ifndef UNIFRAC_TERMS_H
#define UNIFRAC_TERMS_H

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

#endif
