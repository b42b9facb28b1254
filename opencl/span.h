// A work-group takes a span of chunks side by side, as many as fill its columns: a chunk of eight
// patterns alone would leave most of a GPU's warp idle, or read a P matrix four times a warp.
#ifndef SPAN_H
#define SPAN_H

#include "session.h"

// Spans of the case that has most.
static inline int span_count(const plf_t *s) {
  return (s->most_chunks + SPAN - 1) / SPAN;
}

// Whether a case has so many spans.
static inline bool has_span(chunks_t of, int span) {
  return of.first + span * SPAN < of.end;
}

// The n-th chunk of a span, of a case's chunks. There may be fewer.
static inline int span_chunk(chunks_t of, int span, int n) {
  return of.first + span * SPAN + n;
}

// Blocks to take of each column: a lone chunk's own, which may be far fewer than a whole chunk's.
static inline int span_blocks(const plf_t *s, chunks_t of, int span) {
#if SPAN == 1
  return chunk_end(s, of.first + span) - chunk_begin(s, of.first + span);
#else
  return s->chunk_blocks;
#endif
}

// The n-th block of a column; a block of the case's last chunk where there is none: such columns go
// along and leave no trace.
static inline int column_block(const plf_t *s, chunks_t of, int span, int n) {
  const int chunk = min(span_chunk(of, span, COLUMN / LANES), of.end - 1);
  return min(chunk_begin(s, chunk) + n, chunk_end(s, chunk) - 1);
}

static inline bool has_block(const plf_t *s, chunks_t of, int chunk, int n) {
  return chunk < of.end && chunk_begin(s, chunk) + n < chunk_end(s, chunk);
}

static inline bool column_has_block(const plf_t *s, chunks_t of, int span, int n) {
  return has_block(s, of, span_chunk(of, span, COLUMN / LANES), n);
}

#endif
