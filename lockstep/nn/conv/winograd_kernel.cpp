#include "lockstep/nn/conv/winograd_kernel.h"

#include "lockstep/nn/linear/strip_sums.h"

// Compiled once for each instruction set.
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
namespace lockstep::nn::conv {
namespace {

using linear::kMostStripRows;
using linear::kPanel;
using linear::StripElements;
using linear::StripSums;
using simd::ask_ahead;
using simd::ask_ahead_to_write;
using simd::BFloat16;
using simd::each_vector;
using simd::Floats;
using simd::kLanes;
using simd::load;
using simd::store;
using simd::transpose;

// The matrix products of Note [Winograd], by Note [Sums in registers].

/// Calls body with the number of rows that it takes at once, as a type, until all are done.
template <int kRows, typename Body>
inline void rows_at_most(std::int64_t row, std::int64_t end, const Body& body) {
  for (; row + kRows <= end; row += kRows) body.template operator()<kRows>(row);
  if constexpr (kRows > 1) rows_at_most<kRows - 1>(row, end, body);
}

template <int kRows>
inline void store_rows(float* to, const StripSums<kRows>& sums, bool adds) {
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
    float* const first = to + row * kPanel;
    float* const second = first + kLanes;
    store(first, adds ? load(first) + sums.first[row] : sums.first[row]);
    store(second, adds ? load(second) + sums.second[row] : sums.second[row]);
  }
}

// results[r][lane] = sum over i of rows[r][i] * panel[i][lane], for kRows of r, or +=. kAlongDepth
// says whether rows[r] are contiguous, or else the elements of one i.
template <int kRows, bool kAlongDepth>
[[gnu::noinline]] void multiply_rows(const float* rows, std::int64_t stride, const float* panel,
    std::int64_t inner, float* results, bool adds) {
  StripSums<kRows> sums;
  sums.add(StripElements<kRows, kAlongDepth>(rows, stride), panel, inner,
      [](const auto&, std::int64_t) {});
  store_rows(results, sums, adds);
}

inline float* panel_of(const PanelPlanes& planes, std::int64_t plane, std::int64_t panel) {
  return planes.data + plane * planes.plane_stride + panel * planes.rows * kPanel;
}

inline void multiply(const Products& job, Range products) {
  for (std::int64_t product = products.begin; product < products.end; ++product) {
    const std::int64_t plane = product / job.panels, panel = product % job.panels;
    const float* const tiles = job.tiles.data + plane * job.tiles.plane_stride;
    const float* const weights = panel_of(job.weights, plane, panel);
    float* const results = panel_of(job.results, plane, panel);
    rows_at_most<kMostStripRows>(0, job.tile_count, [&]<int kRows>(std::int64_t row) {
      multiply_rows<kRows, true>(tiles + row * job.tiles.row_stride, job.tiles.row_stride, weights,
          job.inputs, results + row * kPanel, /*adds=*/false);
    });
  }
}

inline void accumulate(const Products& job, Range products) {
  for (std::int64_t product = products.begin; product < products.end; ++product) {
    const std::int64_t plane = product / job.panels, panel = product % job.panels;
    const float* const tiles = job.tiles.data + plane * job.tiles.plane_stride;
    const float* const gradients = panel_of(job.results, plane, panel);
    float* const sums = panel_of(job.weights, plane, panel);
    rows_at_most<kMostStripRows>(0, job.inputs, [&]<int kRows>(std::int64_t row) {
      multiply_rows<kRows, false>(tiles + row, job.tiles.row_stride, gradients, job.tile_count,
          sums + row * kPanel, job.adds);
    });
  }
}

// The transforms of one row or column, for tiles of 2x2 and of 4x4.

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

// The transforms of tiles: a vector holds neighbouring channels of one pixel.

struct TilePlace {
  std::int64_t image, row, column;
};

inline TilePlace place_of(const TileGrid& grid, std::int64_t tile) {
  const std::int64_t in_image = tile % (grid.rows * grid.columns);
  return {tile / (grid.rows * grid.columns), in_image / grid.columns, in_image % grid.columns};
}

/// The size of images that tiles are read from, and the first pixel of a tile in them.
struct Window {
  std::int64_t height, width;
  std::int64_t image, row, column;
};

template <typename Form>
inline Window input_window(const TileGrid& grid, std::int64_t tile) {
  const TilePlace place = place_of(grid, tile);
  return {grid.height, grid.width, place.image, place.row * Form::kOut - grid.padding,
      place.column * Form::kOut - grid.padding};
}

template <typename Form>
inline Window output_window(const TileGrid& grid, std::int64_t tile) {
  const TilePlace place = place_of(grid, tile);
  return {grid.out_height, grid.out_width, place.image, place.row * Form::kOut,
      place.column * Form::kOut};
}

/// Where each pixel of a tile is; those outside of the image are `outside`.
template <int kSize, typename T>
struct PixelPointers {
  T* at[kSize][kSize];

  PixelPointers() = default;
  PixelPointers(const Window& window, const Pixels& pixels, T* outside) {
    T* const first = static_cast<T*>(pixels.data);
    for (int y = 0; y < kSize; ++y) {
      for (int x = 0; x < kSize; ++x) {
        const std::int64_t row = window.row + y, column = window.column + x;
        const bool is_inside =
            row >= 0 && row < window.height && column >= 0 && column < window.width;
        const std::int64_t pixel = (window.image * window.height + row) * window.width + column;
        at[y][x] = is_inside ? first + pixel * pixels.channels : outside;
      }
    }
  }
};

// Transforms columns, then rows: from kFrom x kFrom to kTo x kTo.
template <int kFrom, int kTo, typename Load, typename Transform, typename Store>
inline void transform_square(const Load& from, const Transform& transform, const Store& to) {
  Floats between[kTo][kFrom];
#pragma GCC unroll 6
  for (int x = 0; x < kFrom; ++x) {
    Floats column[kFrom], done[kTo];
#pragma GCC unroll 6
    for (int y = 0; y < kFrom; ++y) column[y] = from(y, x);
    transform(column, done);
#pragma GCC unroll 6
    for (int y = 0; y < kTo; ++y) between[y][x] = done[y];
  }
#pragma GCC unroll 6
  for (int y = 0; y < kTo; ++y) {
    Floats done[kTo];
    transform(between[y], done);
#pragma GCC unroll 6
    for (int x = 0; x < kTo; ++x) to(y, x, done[x]);
  }
}

template <typename Form, typename T>
inline void transform_input_of(
    const TileBlock& block, const Pixels& from, Range tiles, const TilePlanes& to) {
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const PixelPointers<Form::kIn, const T> pixels(
        input_window<Form>(block.grid, block.first + tile), from,
        static_cast<const T*>(block.zeros));
    float* const row = to.data + tile * to.row_stride;
    each_vector(from.channels, [&](std::int64_t channel, std::int64_t room) {
      transform_square<Form::kIn, Form::kIn>(
          [&](int y, int x) {
            const T* const pixel = pixels.at[y][x] + channel;
            ask_ahead(pixel);
            return load(pixel, room);
          },
          Form::input,
          [&](int y, int x, Floats value) {
            store(row + (y * Form::kIn + x) * to.plane_stride + channel, value);
          });
    });
  }
}

// Panels are far apart in memory, so each is filled for some tiles before the next begins.
constexpr std::int64_t kTilesAtOnce = 16;

template <typename Form, typename T>
inline void transform_gradient_of(
    const TileBlock& block, const Pixels& from, Range tiles, const PanelPlanes& to) {
  using Pointers = PixelPointers<Form::kOut, const T>;
  for (std::int64_t first = tiles.begin; first < tiles.end; first += kTilesAtOnce) {
    const std::int64_t left = tiles.end - first, count = left < kTilesAtOnce ? left : kTilesAtOnce;
    Pointers pixels[kTilesAtOnce];
    for (std::int64_t tile = 0; tile < count; ++tile) {
      const Window window = output_window<Form>(block.grid, block.first + first + tile);
      pixels[tile] = Pointers(window, from, static_cast<const T*>(block.zeros));
    }
    each_vector(from.channels, [&](std::int64_t channel, std::int64_t room) {
      float* const rows = panel_of(to, 0, channel / kPanel) + first * kPanel + channel % kPanel;
      for (std::int64_t tile = 0; tile < count; ++tile) {
        transform_square<Form::kOut, Form::kIn>(
            [&](int y, int x) {
              const T* const pixel = pixels[tile].at[y][x] + channel;
              ask_ahead(pixel);
              return load(pixel, room);
            },
            Form::gradient,
            [&](int y, int x, Floats value) {
              store(rows + tile * kPanel + (y * Form::kIn + x) * to.plane_stride, value);
            });
      }
    });
  }
}

template <typename Form, typename T>
inline void transform_output_of(const TileBlock& block, const PanelPlanes& from, const float* bias,
    Range tiles, const Pixels& to) {
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const PixelPointers<Form::kOut, T> pixels(
        output_window<Form>(block.grid, block.first + tile), to, nullptr);
    each_vector(to.channels, [&](std::int64_t channel, std::int64_t room) {
      const float* const row =
          panel_of(from, 0, channel / kPanel) + tile * kPanel + channel % kPanel;
      const Floats start = bias == nullptr ? Floats{} : load(bias + channel, room);
      transform_square<Form::kIn, Form::kOut>(
          [&](int y, int x) { return load(row + (y * Form::kIn + x) * from.plane_stride); },
          Form::output,
          [&](int y, int x, Floats value) {
            if (pixels.at[y][x] == nullptr) return;
            T* const pixel = pixels.at[y][x] + channel;
            store(pixel, value + start, room);
            ask_ahead_to_write(pixel);
          });
    });
  }
}

// The steps of WinogradKernel, for pixels of either type.
template <typename Form>
inline void transform_input(
    const TileBlock& block, const Pixels& from, Range tiles, const TilePlanes& to) {
  const bool is_float = from.element == Element::kFloat;
  is_float ? transform_input_of<Form, float>(block, from, tiles, to)
           : transform_input_of<Form, BFloat16>(block, from, tiles, to);
}

template <typename Form>
inline void transform_gradient(
    const TileBlock& block, const Pixels& from, Range tiles, const PanelPlanes& to) {
  const bool is_float = from.element == Element::kFloat;
  is_float ? transform_gradient_of<Form, float>(block, from, tiles, to)
           : transform_gradient_of<Form, BFloat16>(block, from, tiles, to);
}

template <typename Form>
inline void transform_output(const TileBlock& block, const PanelPlanes& from, const float* bias,
    Range tiles, const Pixels& to) {
  const bool is_float = to.element == Element::kFloat;
  is_float ? transform_output_of<Form, float>(block, from, bias, tiles, to)
           : transform_output_of<Form, BFloat16>(block, from, bias, tiles, to);
}

// The transforms of weights in Note [Winograd]: a vector holds neighbouring outputs.

constexpr int kTaps = 9;

// Weights have another order than panels, so some inputs of a panel pass through the first cache.
constexpr std::int64_t kInputsAtOnce = kLanes;
struct WeightPatch {
  float at[kInputsAtOnce][kTaps][kPanel];
};

struct PatchPlace {
  std::int64_t output, outputs, input, inputs;
};

inline float* weight_at(const Weights& weights, std::int64_t output, std::int64_t input) {
  return weights.data + output * weights.output_stride + input * weights.input_stride;
}

inline std::int64_t tap_offset(const Weights& weights, int tap) {
  return tap / 3 * weights.row_stride + tap % 3 * weights.column_stride;
}

/// Calls body with each weight of a patch and its place there, neighbours in memory one after the
/// other: outputs may be neighbours, or inputs, or inputs with their taps between them.
template <typename Body>
inline void each_weight(const Weights& weights, const PatchPlace& place, const Body& body) {
  const auto visit = [&](std::int64_t output, std::int64_t input, int tap) {
    float* const taps = weight_at(weights, place.output + output, place.input + input);
    body(taps[tap_offset(weights, tap)], input, tap, output);
  };
  if (weights.output_stride == 1) {
    for (std::int64_t input = 0; input < place.inputs; ++input)
      for (int tap = 0; tap < kTaps; ++tap)
        for (std::int64_t output = 0; output < place.outputs; ++output) visit(output, input, tap);
    return;
  }
  for (std::int64_t output = 0; output < place.outputs; ++output)
    for (int tap = 0; tap < kTaps; ++tap)
      for (std::int64_t input = 0; input < place.inputs; ++input) visit(output, input, tap);
}

/// Calls body with each square of a whole patch, if inputs are neighbours in memory: its first
/// weight and its first place in the patch. Returns whether it is so.
template <typename Body>
inline bool each_square(const Weights& weights, const PatchPlace& place, const Body& body) {
  const bool is_whole = place.outputs == kPanel && place.inputs == kInputsAtOnce;
  if (weights.input_stride != 1 || !is_whole) return false;
  for (int tap = 0; tap < kTaps; ++tap)
    for (std::int64_t output = 0; output < kPanel; output += kLanes)
      body(weight_at(weights, place.output + output, place.input) + tap_offset(weights, tap), tap,
          output);
  return true;
}

inline void gather(const Weights& weights, const PatchPlace& place, WeightPatch& patch) {
  const bool is_done =
      each_square(weights, place, [&](const float* first, int tap, std::int64_t output) {
        Floats rows[kLanes];
        for (int row = 0; row < kLanes; ++row)
          rows[row] = load(first + row * weights.output_stride);
        transpose(rows);
        for (int row = 0; row < kLanes; ++row) store(&patch.at[row][tap][output], rows[row]);
      });
  if (is_done) return;
  each_weight(weights, place, [&](float weight, std::int64_t input, int tap, std::int64_t output) {
    patch.at[input][tap][output] = weight;
  });
}

inline void scatter(const WeightPatch& patch, const PatchPlace& place, const Weights& weights) {
  const bool is_done = each_square(weights, place, [&](float* first, int tap, std::int64_t output) {
    Floats rows[kLanes];
    for (int row = 0; row < kLanes; ++row) rows[row] = load(&patch.at[row][tap][output]);
    transpose(rows);
    for (int row = 0; row < kLanes; ++row) store(first + row * weights.output_stride, rows[row]);
  });
  if (is_done) return;
  each_weight(weights, place, [&](float& weight, std::int64_t input, int tap, std::int64_t output) {
    weight = patch.at[input][tap][output];
  });
}

template <typename Body>
inline void each_patch(const Weights& weights, Range panels, const Body& body) {
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const std::int64_t first = panel * kPanel, left = weights.outputs - first;
    for (std::int64_t input = 0; input < weights.inputs; input += kInputsAtOnce) {
      const std::int64_t inputs = weights.inputs - input;
      body(panel, PatchPlace{.output = first,
                      .outputs = left < kPanel ? left : kPanel,
                      .input = input,
                      .inputs = inputs < kInputsAtOnce ? inputs : kInputsAtOnce});
    }
  }
}

template <typename Form>
inline void transform_weights(const Weights& weights, Range panels, const PanelPlanes& to) {
  WeightPatch patch = {};  // lanes beyond the last output stay what they were, and are never read
  each_patch(weights, panels, [&](std::int64_t panel, const PatchPlace& place) {
    gather(weights, place, patch);
    for (std::int64_t input = 0; input < place.inputs; ++input) {
      float* const row = panel_of(to, 0, panel) + (place.input + input) * kPanel;
      for (std::int64_t lane = 0; lane < kPanel; lane += kLanes) {
        transform_square<3, Form::kIn>(
            [&](int y, int x) { return load(&patch.at[input][y * 3 + x][lane]); }, Form::weights,
            [&](int y, int x, Floats value) {
              store(row + (y * Form::kIn + x) * to.plane_stride + lane, value);
            });
      }
    }
  });
}

template <typename Form>
inline void finish_weights(const PanelPlanes& from, Range panels, const Weights& to) {
  WeightPatch patch;
  each_patch(to, panels, [&](std::int64_t panel, const PatchPlace& place) {
    for (std::int64_t input = 0; input < place.inputs; ++input) {
      const float* const row = panel_of(from, 0, panel) + (place.input + input) * kPanel;
      for (std::int64_t lane = 0; lane < kPanel; lane += kLanes) {
        transform_square<Form::kIn, 3>(
            [&](int y, int x) {
              return load(row + (y * Form::kIn + x) * from.plane_stride + lane);
            },
            Form::weights_gradient,
            [&](int y, int x, Floats value) { store(&patch.at[input][y * 3 + x][lane], value); });
      }
    }
    scatter(patch, place, to);
  });
}

template <typename Form>
constexpr WinogradKernel kernel_of() {
  return {.name = LOCKSTEP_BUILD_NAME,
      .tile = Form::kOut,
      .planes = Form::kIn * Form::kIn,
      .panel = kPanel,
      .transform_weights = transform_weights<Form>,
      .transform_input = transform_input<Form>,
      .multiply = multiply,
      .transform_output = transform_output<Form>,
      .transform_gradient = transform_gradient<Form>,
      .accumulate = accumulate,
      .finish_weights = finish_weights<Form>};
}

}  // namespace

const WinogradBuild& LOCKSTEP_BUILD(winograd)() {
  static constexpr WinogradBuild kBuild{
      LOCKSTEP_BUILD_NAME, kernel_of<SmallTile>(), kernel_of<LargeTile>()};
  return kBuild;
}

}  // namespace lockstep::nn::conv
