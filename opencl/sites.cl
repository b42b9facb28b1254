// The site-local worker: levels of newviews, evaluations and derivatives, chunk by chunk. A
// work-group takes a chunk through the whole stream, tile by tile, without waiting for another.
#include "edge.h"
#if SYSTEMS > 1 && !SITE_SYSTEMS
#define HAS_FLOW 1
#include "flow.h"
#else
#define HAS_FLOW 0
#endif
#include "grid.h"
#include "newview.h"

#define OWN_OP OP_SITES
#define WORKER_ROWS ROWS
#define EDGE_TERMS (TERMS * ROWS * SHARES * LANES)
#define FLOW_TERMS (HAS_FLOW && LANES > 1 ? 2 * STATES * LANES : 0)
#define LOCAL_TERMS (EDGE_TERMS > FLOW_TERMS ? EDGE_TERMS : FLOW_TERMS)
#define LOCAL_LANES (2 * ROWS * LANES)
#define LOCAL_CELLS 1

static inline void own_stage(const plf_t *s, __global const int *streams, int count, int aux,
                             __local real_v *stack, __local real_v *terms, __local count_v *counts,
                             __local acc_v *lanes, __local int *cells, __local ulong *book,
                             ulong *since) {
  const int functions[] = RUN_FUNCTIONS;
  const long jobs = (long)count * s->most_chunks;
  for (long job = GROUP; job < jobs; job += GROUPS) {
    const int n = count == 1 ? 0 : job / s->most_chunks;
    __global const int *stream = streams + n * STREAM_WORDS;
    if (is_settled(s, stream[STREAM_GROUP])) continue;
    const chunks_t of = chunks_of(s, stream[STREAM_FIRST_PART], stream[STREAM_PARTS]);
    const int chunk = of.first + (int)(job - (long)n * s->most_chunks);
    if (chunk >= of.end) continue;
    __global const int *runs = s->program + stream[STREAM_FIRST_RUN];
    const int run_count = stream[STREAM_RUNS], end = chunk_end(s, chunk);
    for (int tile = chunk_begin(s, chunk); tile < end; tile += s->tile_blocks) {
      const int tile_end = min(tile + s->tile_blocks, end);
      for (int r = 0; r < run_count; ++r) {
        const int levels = newview_runs(s, runs + r * RUN_WORDS, run_count - r, tile, tile_end);
        if (levels > 0) mark(book, since, FN_NEWVIEW);
        r += levels;
        if (r == run_count) break;
        __global const int *run = runs + r * RUN_WORDS;
        const int kind = run[RUN_KIND], records = run[RUN_COUNT];
        __global const int *record = s->program + run[RUN_FIRST];
        if (kind != DO_FLOW)
          edges_run(s, record, records, kind, chunk, tile, tile_end, terms, counts, lanes);
#if HAS_FLOW
        else
          flow_run(s, record, records, chunk, tile, tile_end, terms);
#endif
        mark(book, since, functions[kind]);
      }
    }
  }
}

#include "worker.h"
