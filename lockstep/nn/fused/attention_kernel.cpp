#include "lockstep/nn/fused/attention_kernel.h"

#include "lockstep/simd/exponential.h"
#include "lockstep/simd/lanes.h"

namespace lockstep::nn::fused {
namespace {

using simd::each_vector;
using simd::Floats;
using simd::load;
using simd::store;

inline void softmax_row(float* scores, std::int64_t count, float scale) {
  const float most = simd::largest(scores, count) * scale;
  Floats sum = {};
  each_vector(count, [&](std::int64_t place, std::int64_t room) {
    const Floats power = simd::exponential(load(scores + place, room) * scale - most);
    sum += simd::first_of(power, room, Floats{});
    store(scores + place, power, room);
  });
  const float part = 1 / simd::sum(sum);
  each_vector(count, [&](std::int64_t place, std::int64_t room) {
    store(scores + place, load(scores + place, room) * part, room);
  });
}

inline void backward_row(const float* weights, float* gradients, std::int64_t count, float scale) {
  Floats sums = {};
  each_vector(count, [&](std::int64_t place, std::int64_t room) {
    sums += load(weights + place, room) * load(gradients + place, room);
  });
  const float sum = simd::sum(sums);
  each_vector(count, [&](std::int64_t place, std::int64_t room) {
    const Floats above = load(gradients + place, room) - sum;
    store(gradients + place, load(weights + place, room) * above * scale, room);
  });
}

inline void attention_softmax(const AttentionBlock& block) {
  const std::int64_t keys = block.queries.end;
  for (std::int64_t query = block.queries.begin; query < block.queries.end; ++query) {
    float* const row = block.weights + (query - block.queries.begin) * keys;
    softmax_row(row, query + 1, block.scale);
    simd::fill_zero(row + query + 1, keys - query - 1);
  }
}

inline void attention_backward(const AttentionBlock& block) {
  const std::int64_t keys = block.queries.end;
  for (std::int64_t query = block.queries.begin; query < block.queries.end; ++query) {
    const std::int64_t first = (query - block.queries.begin) * keys;
    backward_row(block.weights + first, block.gradients + first, query + 1, block.scale);
    simd::fill_zero(block.gradients + first + query + 1, keys - query - 1);
  }
}

}  // namespace

const AttentionKernel& LOCKSTEP_BUILD(attention)() {
  static constexpr AttentionKernel kKernel{
      .name = LOCKSTEP_BUILD_NAME, .softmax = attention_softmax, .backward = attention_backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
