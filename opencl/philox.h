// Random numbers by counter, the twin of mltree/program/random_numbers.py: Philox4x32-10 (Salmon,
// Moraes, Dror and Shaw 2011). Every work-item of a group draws the same ones.
#ifndef PHILOX_H
#define PHILOX_H

#include "lanes.h"

// Functions of a chain are calls: each is asked for in many places, and an NVIDIA driver that
// inlined them all took a minute for time_sweeps.cl on an H200, not 15 s.
#ifdef __NV_CL_C_VERSION
#define CHAIN_FUNCTION static __attribute__((noinline))
#elif LONE
#define CHAIN_FUNCTION __attribute__((noinline))
#else
#define CHAIN_FUNCTION static
#endif

static inline uint4 philox(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const uint high_0 = mul_hi(0xD2511F53u, counter.s0), low_0 = 0xD2511F53u * counter.s0;
    const uint high_2 = mul_hi(0xCD9E8D57u, counter.s2), low_2 = 0xCD9E8D57u * counter.s2;
    counter = (uint4)(high_2 ^ counter.s1 ^ key.s0, low_2, high_0 ^ counter.s3 ^ key.s1, low_0);
    key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

// The draws of a move: key (seed, run), counter (replica, sweep, move, draw).
typedef struct {
  uint4 counter;
  uint2 key;
} stream_t;

// Two numbers within (0, 1).
CHAIN_FUNCTION void uniforms(stream_t *stream, acc numbers[2]) {
  const uint4 words = philox(stream->counter, stream->key);
  stream->counter.s3 += 1;
#if FP64
  const ulong first = ((ulong)words.s1 << 32 | words.s0) >> 11;
  const ulong second = ((ulong)words.s3 << 32 | words.s2) >> 11;
  numbers[0] = (convert_double(first) + 0.5) * 0x1p-53;
  numbers[1] = (convert_double(second) + 0.5) * 0x1p-53;
#else
  numbers[0] = (convert_float(words.s1 >> 9) + 0.5f) * 0x1p-23f;
  numbers[1] = (convert_float(words.s3 >> 9) + 0.5f) * 0x1p-23f;
#endif
}

static inline acc uniform(stream_t *stream) {
  acc numbers[2];
  uniforms(stream, numbers);
  return numbers[0];
}

CHAIN_FUNCTION acc gumbel(stream_t *stream) {
  return -log(-log(uniform(stream)));
}

// By Box and Muller.
CHAIN_FUNCTION acc normal(stream_t *stream) {
  acc numbers[2];
  uniforms(stream, numbers);
  return sqrt(-2 * log(numbers[0])) * cos((acc)6.28318530717958647692 * numbers[1]);
}

// Of Gamma(shape, 1), of a shape of at least 1, by Marsaglia and Tsang.
static inline acc gamma_draw(stream_t *stream, acc shape) {
  const acc d = shape - (acc)1 / 3, c = 1 / sqrt(9 * d);
  for (int tries = 0; tries < 1000; ++tries) {
    const acc x = normal(stream), root = 1 + c * x, v = root * root * root;
    if (v > 0 && log(uniform(stream)) < x * x / 2 + d - d * v + d * log(v)) return d * v;
  }
  return d;
}

#endif
