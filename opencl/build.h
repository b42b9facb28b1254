// Every -D that a build must give, and what follows from it. Python picks the values
// (mltree/device/layout.py, build.py); nothing here has a default.
#ifndef BUILD_H
#define BUILD_H

#include "contract.h"

#ifndef STATES
#error "-DSTATES: states of the alphabet (4 DNA, 20 protein, 61 codon)"
#endif
#ifndef CODES
#error "-DCODES: tip codes, rows of the tip table"
#endif
#ifndef CATEGORIES
#error "-DCATEGORIES: rate categories, or classes of a mixture"
#endif
#ifndef WIDTH
#error "-DWIDTH: patterns in a lane's vector"
#endif
#ifndef LANES
#error "-DLANES: work-items that share a block; 1 on CPUs"
#endif
#ifndef STATE_ITEMS
#error "-DSTATE_ITEMS: work-items that share a pattern's states: 4 where warps multiply, else 1"
#endif
#ifndef CATEGORY_ITEMS
#error "-DCATEGORY_ITEMS: work-items that share the categories: on GPUs as many as fit, else 1"
#endif
#ifndef ROWS
#error "-DROWS: instructions of one level that a work-group runs side by side"
#endif
#ifndef SYSTEMS
#error "-DSYSTEMS: eigen systems of a model, each with an equal number of categories"
#endif
#ifndef PARTED
#error "-DPARTED: 1 if the patterns are of several parts, with models of their own"
#endif
#ifndef SITE_SYSTEMS
#error "-DSITE_SYSTEMS: 1 if every pattern has an eigen system of its own"
#endif
#ifndef SINGLE
#error "-DSINGLE: 1 for fp32 CLAs, 0 for fp64"
#endif
#ifndef FP64
#error "-DFP64: 1 if the device has doubles to sum in"
#endif
#ifndef TIP_LOOKUP
#error "-DTIP_LOOKUP: 1 to read P x tip from a table, 0 to expand the tip's code"
#endif
#ifndef SPIN_LIMIT
#error "-DSPIN_LIMIT: polls of the grid barrier before it reports a fault"
#endif
#ifndef SOURCE_HASH
#error "-DSOURCE_HASH: hash over opencl/, so that a cached build is never stale"
#endif

#if FP64 && defined(cl_khr_fp64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

// Chunks that a work-group takes side by side (span.h), where its front file says so: as many as
// fill a GPU's warp.
#if defined(TAKES_SPANS) && LANES > 1 && LANES * STATE_ITEMS < WARP
#define SPAN (WARP / (LANES * STATE_ITEMS))
#else
#define SPAN 1
#endif
// Categories whose terms are kept apart until they are summed: on GPUs a work-item that has several
// joins its own before.
#define SHARES (LANES == 1 ? CATEGORIES : CATEGORY_ITEMS)
#define HELD ((STATES + STATE_ITEMS - 1) / STATE_ITEMS)  // states that a work-item holds
#define VW (WIDTH * LANES)             // patterns in a block, the layout's vector width
#define COLUMNS (LANES * SPAN)         // shares of the patterns
#define SEATS (COLUMNS * STATE_ITEMS)  // work-items that have them
#define TEAM (SEATS * CATEGORY_ITEMS)  // work-items that share a row
#define GROUP_SIZE(rows) (TEAM * (rows))

#endif
