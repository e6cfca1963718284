#pragma once

// The transforms of one row or column, for tiles of 2x2 and of 4x4.
//
// Note [Winograd]
//
// A 3x3 convolution computes each output pixel by 9 products a channel. Winograd's form computes a
// tile of m x m of them at once, by (m + 2)^2 products: 16 instead of 36, or 36 instead of 144.
//
//     d  the (m+2) x (m+2) input pixels of a tile        V = B' d B
//     g  the 3 x 3 weights                               U = G g G'
//     y  the m x m output pixels                         y = A' (U . V) A      (. by elements)
//
// With many channels each of the (m+2)^2 places is a matrix product of its own,
//
//     V[place]            U[place]             M[place]
//     tiles x inputs  x   inputs x outputs  =  tiles x outputs
//
// which is where the time goes. The gradients are those of these formulas: with the output's
// gradient e, and Z = A e A', that of the weights is G' (sum over tiles of Z . V) G, so its
// products are V' x Z, as many as before. That of the input is itself a convolution: of e, with
// weights that are rotated and whose inputs and outputs are exchanged.
//
// B, G and A interpolate at 0, 1, -1, infinity for m = 2, and at 2, -2 in addition for m = 4
// (Lavin and Gray, 2015). Sums of products with factors up to 8 lose two to three bits of a float
// against the direct sum; the tests state how much.

#include "lockstep/nn/fused/vectors.h"

namespace lockstep::nn::conv {
namespace {

using fused::Floats;
using fused::kLanes;

struct SmallTile {
  static constexpr int kOut = 2;
  static constexpr int kIn = 4;

  static void input(const Floats (&d)[kIn], Floats (&v)[kIn]) {
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
  }

  static void weights(const Floats (&g)[3], Floats (&u)[kIn]) {
    const Floats outer = (g[0] + g[2]) * 0.5f, inner = g[1] * 0.5f;
    u[0] = g[0];
    u[1] = outer + inner;
    u[2] = outer - inner;
    u[3] = g[2];
  }

  static void output(const Floats (&m)[kIn], Floats (&y)[kOut]) {
    y[0] = m[0] + m[1] + m[2];
    y[1] = m[1] - m[2] - m[3];
  }

  static void gradient(const Floats (&e)[kOut], Floats (&z)[kIn]) {
    z[0] = e[0];
    z[1] = e[0] + e[1];
    z[2] = e[0] - e[1];
    z[3] = -e[1];
  }

  static void weights_gradient(const Floats (&s)[kIn], Floats (&g)[3]) {
    const Floats outer = (s[1] + s[2]) * 0.5f;
    g[0] = s[0] + outer;
    g[1] = (s[1] - s[2]) * 0.5f;
    g[2] = outer + s[3];
  }
};

struct LargeTile {
  static constexpr int kOut = 4;
  static constexpr int kIn = 6;

  static void input(const Floats (&d)[kIn], Floats (&v)[kIn]) {
    const Floats even1 = d[4] - 4.0f * d[2], odd1 = d[3] - 4.0f * d[1];
    const Floats even2 = d[4] - d[2], odd2 = 2.0f * (d[3] - d[1]);
    v[0] = 4.0f * d[0] - 5.0f * d[2] + d[4];
    v[1] = even1 + odd1;
    v[2] = even1 - odd1;
    v[3] = even2 + odd2;
    v[4] = even2 - odd2;
    v[5] = 4.0f * d[1] - 5.0f * d[3] + d[5];
  }

  static void weights(const Floats (&g)[3], Floats (&u)[kIn]) {
    const Floats even1 = (g[0] + g[2]) * (-1.0f / 6), odd1 = g[1] * (1.0f / 6);
    const Floats even2 = g[0] * (1.0f / 24) + g[2] * (1.0f / 6), odd2 = g[1] * (1.0f / 12);
    u[0] = g[0] * 0.25f;
    u[1] = even1 - odd1;
    u[2] = even1 + odd1;
    u[3] = even2 + odd2;
    u[4] = even2 - odd2;
    u[5] = g[2];
  }

  static void output(const Floats (&m)[kIn], Floats (&y)[kOut]) {
    const Floats even1 = m[1] + m[2], odd1 = m[1] - m[2];
    const Floats even2 = m[3] + m[4], odd2 = m[3] - m[4];
    y[0] = m[0] + even1 + even2;
    y[1] = odd1 + 2.0f * odd2;
    y[2] = even1 + 4.0f * even2;
    y[3] = odd1 + 8.0f * odd2 + m[5];
  }

  static void gradient(const Floats (&e)[kOut], Floats (&z)[kIn]) {
    const Floats even1 = e[0] + e[2], odd1 = e[1] + e[3];
    const Floats even2 = e[0] + 4.0f * e[2], odd2 = 2.0f * e[1] + 8.0f * e[3];
    z[0] = e[0];
    z[1] = even1 + odd1;
    z[2] = even1 - odd1;
    z[3] = even2 + odd2;
    z[4] = even2 - odd2;
    z[5] = e[3];
  }

  static void weights_gradient(const Floats (&s)[kIn], Floats (&g)[3]) {
    const Floats even1 = (s[1] + s[2]) * (-1.0f / 6), even2 = (s[3] + s[4]) * (1.0f / 24);
    g[0] = s[0] * 0.25f + even1 + even2;
    g[1] = (s[2] - s[1]) * (1.0f / 6) + (s[3] - s[4]) * (1.0f / 12);
    g[2] = even1 + even2 * 4.0f + s[5];
  }
};

}  // namespace
}  // namespace lockstep::nn::conv
