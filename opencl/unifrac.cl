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
typedef sum_t lanes_t;
typedef double real_t;
typedef long whole_t;
#define TERMS 1
#define WHOLE convert_long_rte
#define REAL convert_double
#define EXPONENT(x) convert_long_rte(x)
#endif
#define BLOCK (VECTORS * WIDTH * ITEMS)  // columns of a group

#include "unifrac_rows.h"

#include "unifrac_minima.h"
#include "unifrac_terms.h"
