// The joint Newton step of the three branches around an insertion.
#ifndef TRIPLET_STEP_H
#define TRIPLET_STEP_H

#include "grid.h"

// step = H^-1 g by Cramer's rule where -H is positive definite, and its determinant more than
// `least` of the product of its diagonal; returns whether it is, and the step finite.
static inline bool cramer_step(const acc g[3], const acc h[6], acc least, acc step[3]) {
  const acc a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5];  // 11 22 33 12 13 23
  const acc minor = a * b - d * d;
  const acc det = c * minor - a * f * f + 2 * d * e * f - b * e * e;
  if (!(a < 0 && minor > 0 && det < 0 && det < least * (a * b * c))) return false;
  step[0] = ((b * c - f * f) * g[0] + (e * f - c * d) * g[1] + (d * f - b * e) * g[2]) / det;
  step[1] = ((e * f - c * d) * g[0] + (a * c - e * e) * g[1] + (d * e - a * f) * g[2]) / det;
  step[2] = ((d * f - b * e) * g[0] + (d * e - a * f) * g[1] + minor * g[2]) / det;
  return isfinite(step[0]) && isfinite(step[1]) && isfinite(step[2]);
}

// Second derivatives of which lengths that take no part have none: those whose curvature is not
// negative, since what the data say nothing of has one of either sign, by rounding.
static inline void uncouple(__global const acc *hessian, bool alone[3], acc h[6]) {
  const int one[3] = {0, 0, 1}, other[3] = {1, 2, 2};
  for (int n = 0; n < 3; ++n) {
    alone[n] = !(hessian[n] < 0);
    h[n] = alone[n] ? 0 : hessian[n];
  }
  for (int n = 0; n < 3; ++n) h[3 + n] = alone[one[n]] || alone[other[n]] ? 0 : hessian[3 + n];
}

// Newton's step of the others, with a ridge on the diagonal where -H is all but singular.
static inline bool solve_triplet(const acc slopes[3], const bool alone[3], const acc uncoupled[6],
                                 acc step[3]) {
  acc g[3], h[6];
  for (int n = 0; n < 3; ++n) {
    g[n] = alone[n] ? 0 : slopes[n];
    h[n] = alone[n] ? -1 : uncoupled[n];
    h[3 + n] = uncoupled[3 + n];
  }
  if (cramer_step(g, h, (acc)(RIDGE * RIDGE), step)) return true;
  for (int n = 0; n < 3; ++n) h[n] *= 1 + (acc)RIDGE;
  return cramer_step(g, h, 0, step);
}

// What H adds to the n-th slope along a change of all three.
static inline acc bent(const acc h[6], int n, const acc change[3]) {
  const int of[9] = {0, 3, 4, 3, 1, 5, 4, 5, 2};
  return h[of[3 * n]] * change[0] + h[of[3 * n + 1]] * change[1] + h[of[3 * n + 2]] * change[2];
}

#endif
