#pragma once

// Included once by each source that compiles the loops for one instruction set.

#include "lockstep/nn/conv/winograd_tiles.h"

namespace lockstep::nn::conv {

// The transforms of weights in Note [Winograd]: a vector holds neighbouring outputs.

namespace {

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

template <int... kLane>
struct LaneList {};
template <int kCount, int... kLane>
struct LanesBelow : LanesBelow<kCount - 1, kCount - 1, kLane...> {};
template <int... kLane>
struct LanesBelow<0, kLane...> {
  using List = LaneList<kLane...>;
};

// Of squares of kStep lanes, the upper right one changes places with the lower left one.
template <int kStep, int... kLane>
inline void exchange(Floats& upper, Floats& lower, LaneList<kLane...>) {
  const Floats above = upper, below = lower;
  upper = __builtin_shufflevector(
      above, below, ((kLane & kStep) != 0 ? kLanes + kLane - kStep : kLane)...);
  lower = __builtin_shufflevector(
      above, below, ((kLane & kStep) != 0 ? kLanes + kLane : kLane + kStep)...);
}

/// Transposes kLanes vectors, in squares that double.
template <int kStep = 1>
inline void transpose(Floats* rows) {
  if constexpr (kStep < kLanes) {
#pragma GCC unroll 16
    for (int row = 0; row < kLanes; ++row) {
      if ((row & kStep) == 0)
        exchange<kStep>(rows[row], rows[row + kStep], typename LanesBelow<kLanes>::List{});
    }
    transpose<2 * kStep>(rows);
  }
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
        for (int row = 0; row < kLanes; ++row) store_all(&patch.at[row][tap][output], rows[row]);
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
    for (int row = 0; row < kLanes; ++row)
      store_all(first + row * weights.output_stride, rows[row]);
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
              store_all(row + (y * Form::kIn + x) * to.plane_stride + lane, value);
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
            [&](int y, int x, Floats value) {
              store_all(&patch.at[input][y * 3 + x][lane], value);
            });
      }
    }
    scatter(patch, place, to);
  });
}

}  // namespace

namespace {

template <typename Form>
constexpr WinogradKernel kernel_of(const char* name) {
  return {.name = name,
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

constexpr WinogradBuild build_of(const char* name) {
  return {name, kernel_of<SmallTile>(name), kernel_of<LargeTile>(name)};
}

}  // namespace

}  // namespace lockstep::nn::conv
