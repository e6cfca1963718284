#include "lockstep/nn/fused/attention_kernel.h"

#include <limits>

#include "lockstep/nn/fused/rows_in_fours.h"
#include "lockstep/simd/exponential.h"
#include "lockstep/simd/lanes.h"

namespace lockstep::nn::fused {
namespace {

using simd::Floats;
using simd::kLanes;
using simd::load;
using simd::store;

/// The numbers of keys that some rows see, the last of them the most.
template <int kRows>
struct SeenKeys {
  std::int64_t counts[kRows];

  SeenKeys(const AttentionBlock& block, std::int64_t first) {
    for (int row = 0; row < kRows; ++row)
      counts[row] = block.is_causal ? block.queries.begin + first + row + 1 : block.keys;
  }

  // Calls body with the place of each vector; whether all rows see all of it is its template
  // argument.
  template <typename Body>
  void each_vector(const Body& body) const {
    std::int64_t place = 0;
    for (; place + kLanes <= counts[0]; place += kLanes) body.template operator()<true>(place);
    for (; place < counts[kRows - 1]; place += kLanes) body.template operator()<false>(place);
  }

  // The lanes that a row sees, the others of `other`.
  template <bool kIsWhole>
  Floats of_row(int row, std::int64_t place, Floats vector, Floats other) const {
    if constexpr (kIsWhole) return vector;
    const std::int64_t room = counts[row] - place;
    return simd::first_of(vector, room < 0 ? 0 : room, other);
  }
};

// The places behind the last vector that was stored.
template <int kRows>
inline void hide_others(const AttentionBlock& block, const SeenKeys<kRows>& seen, float* rows) {
  const std::int64_t end = (seen.counts[kRows - 1] + kLanes - 1) / kLanes * kLanes;
  for (int row = 0; row < kRows && end < block.keys; ++row)
    simd::fill_zero(rows + row * block.stride + end, block.keys - end);
}

// A row of scores that are all -infinity has weights of zero, as LibTorch's: none is the largest.
inline float finite(float most) {
  return most == -std::numeric_limits<float>::infinity() ? 0 : most;
}

// Rows in fours: the longest wait is that for the largest of a row, and for its sum.
template <int kRows>
inline void softmax_rows(const AttentionBlock& block, std::int64_t first) {
  const SeenKeys<kRows> seen(block, first);
  float* const rows = block.weights + first * block.stride;
  Floats most[kRows], sums[kRows] = {};
  for (int row = 0; row < kRows; ++row) most[row] = simd::all(rows[row * block.stride]);
  seen.each_vector([&]<bool kIsWhole>(std::int64_t place) {
    for (int row = 0; row < kRows; ++row) {
      const Floats score = load(rows + row * block.stride + place);
      const Floats found = seen.template of_row<kIsWhole>(row, place, score, most[row]);
      most[row] = found > most[row] ? found : most[row];
    }
  });
  for (int row = 0; row < kRows; ++row) most[row] = simd::all(finite(simd::maximum(most[row])));
  seen.each_vector([&]<bool kIsWhole>(std::int64_t place) {
    for (int row = 0; row < kRows; ++row) {
      float* const scores = rows + row * block.stride + place;
      const Floats power = simd::exponential((load(scores) - most[row]) * block.scale);
      const Floats shown = seen.template of_row<kIsWhole>(row, place, power, Floats{});
      sums[row] += shown;
      store(scores, shown);
    }
  });
  for (int row = 0; row < kRows; ++row) {
    const float sum = simd::sum(sums[row]);
    sums[row] = simd::all(sum == 0 ? 0 : 1 / sum);
  }
  seen.each_vector([&]<bool kIsWhole>(std::int64_t place) {
    for (int row = 0; row < kRows; ++row) {
      float* const powers = rows + row * block.stride + place;
      store(powers, load(powers) * sums[row]);
    }
  });
  hide_others(block, seen, rows);
}

template <int kRows>
inline void backward_rows(const AttentionBlock& block, std::int64_t first) {
  const SeenKeys<kRows> seen(block, first);
  const float* const weights = block.weights + first * block.stride;
  const float* const dropped = block.dropped + first * block.stride;
  float* const rows = block.gradients + first * block.stride;
  Floats sums[kRows] = {};
  seen.each_vector([&]<bool kIsWhole>(std::int64_t place) {
    for (int row = 0; row < kRows; ++row) {
      const std::int64_t at = row * block.stride + place;
      sums[row] += seen.template of_row<kIsWhole>(
          row, place, load(dropped + at) * load(rows + at), Floats{});
    }
  });
  for (int row = 0; row < kRows; ++row) sums[row] = simd::all(simd::sum(sums[row]));
  seen.each_vector([&]<bool kIsWhole>(std::int64_t place) {
    for (int row = 0; row < kRows; ++row) {
      const std::int64_t at = row * block.stride + place;
      const Floats product = load(dropped + at) * load(rows + at);
      const Floats gradient = (product - load(weights + at) * sums[row]) * block.scale;
      store(rows + at, seen.template of_row<kIsWhole>(row, place, gradient, Floats{}));
    }
  });
  hide_others(block, seen, rows);
}

// Calls shown with each vector of scaled scores, its place in a row of the mask, and its room.
template <typename T, typename Shown>
inline void mask_rows(const AttentionBlock& block, const AttentionMask& mask, const Shown& shown) {
  const T* places = static_cast<const T*>(mask.rows);
  float* scores = block.weights;
  for (std::int64_t row = block.queries.begin; row < block.queries.end; ++row) {
    simd::each_vector(block.keys, [&](std::int64_t at, std::int64_t room) {
      const Floats scaled = load(scores + at) * block.scale;
      store(scores + at, shown(scaled, places + at, room));
    });
    places += mask.stride;
    scores += block.stride;
  }
}

inline void attention_mask(const AttentionBlock& block, const AttentionMask& mask) {
  if (!mask.is_bool) {
    return mask_rows<float>(block, mask, [](Floats scores, const float* added, std::int64_t room) {
      return scores + load(added, room);
    });
  }
  const Floats hidden = simd::all(-std::numeric_limits<float>::infinity());
  mask_rows<std::uint8_t>(
      block, mask, [&](Floats scores, const std::uint8_t* seen, std::int64_t room) {
        return load(seen, room) != 0 ? scores : hidden;
      });
}

inline void attention_softmax(const AttentionBlock& block) {
  in_fours(block.queries.end - block.queries.begin,
      [&]<int kRows>(std::int64_t row) { softmax_rows<kRows>(block, row); });
}

inline void attention_backward(const AttentionBlock& block) {
  in_fours(block.queries.end - block.queries.begin,
      [&]<int kRows>(std::int64_t row) { backward_rows<kRows>(block, row); });
}

}  // namespace

const AttentionKernel& LOCKSTEP_BUILD(attention)() {
  static constexpr AttentionKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .mask = attention_mask,
      .softmax = attention_softmax,
      .backward = attention_backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
