#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Generator.h>

#include "lockstep/parallel/operators/operator_mode.h"

namespace lockstep {

/// Lets the random operators of this thread (dropout, randn, ...) draw from the given generator
/// while it exists, unless a call names one.
///
/// LibTorch has one generator a device for all threads, so replicas and stages that are threads
/// would draw in a random order. With a stream each, a run repeats bit for bit, and a forward that
/// is computed again for its activations sees the same dropout.
///
///     auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
///     const RandomStream stream(generator);
///
/// Operators on other devices than the generator's draw from generators of those devices, made with
/// the same seed when they first do.
class [[nodiscard]] RandomStream {
 public:
  explicit RandomStream(at::Generator generator);
  ~RandomStream();
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

  /// Returns the stream's generator for a device.
  at::Generator on(c10::Device device) const;

 private:
  mutable std::vector<at::Generator>
      generators_;  //< the given one first, then one for each other device
  const RandomStream* before_;
  OperatorRulesOn on_;
};

/// Draws a seed for streams: from this thread's stream, else from LibTorch's generator of the CPU,
/// which manual_seed() sets.
std::uint64_t draw_stream_seed();

/// Returns the seed of one of the many streams of a seed, numbered by two indices.
std::uint64_t stream_seed(std::uint64_t seed, std::size_t row, std::size_t column);

/// Makes the generator of that stream.
at::Generator make_stream_generator(std::uint64_t seed, std::size_t row, std::size_t column);

}  // namespace lockstep
