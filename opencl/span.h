// A work-group takes a span of chunks side by side, as many as fill its columns: a chunk of eight
// patterns alone would leave most of a GPU's warp idle, or read a P matrix four times a warp.
#ifndef SPAN_H
#define SPAN_H

#include "session.h"

static inline int span_count(const plf_t *s) {
  return (s->chunks + SPAN - 1) / SPAN;
}

// The chunk of a column. Beyond the last one, columns go along and leave no trace.
static inline int column_chunk(int span, int column) {
  return span * SPAN + column / LANES;
}

// The n-th block of a chunk; the last block of all where there is none.
static inline int chunk_block(const plf_t *s, int chunk, int n) {
  return min(chunk * s->chunk_blocks + n, s->blocks - 1);
}

static inline bool has_block(const plf_t *s, int chunk, int n) {
  return chunk < s->chunks && chunk * s->chunk_blocks + n < s->blocks;
}

#endif
