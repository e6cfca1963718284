#pragma once

#include <optional>

#include <ATen/core/Generator.h>

#include "lockstep/parallel/operators/operator_mode.h"

namespace lockstep {

/// Lets the random operators of this thread (dropout, randn, ...) draw from a generator of its own
/// while it lives, unless a call names one.
///
/// LibTorch has one generator a device for all threads, so replicas and stages that are threads
/// would draw in the order of their chance meetings. With a stream each, a run repeats bit for bit,
/// and a forward that is computed again for its activations sees the same dropout.
///
///     auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
///     const RandomStream stream(generator);
///
/// Operators on other devices than the generator's keep their own.
class [[nodiscard]] RandomStream {
 public:
  explicit RandomStream(at::Generator generator);
  ~RandomStream();
  RandomStream(const RandomStream&) = delete;
  RandomStream& operator=(const RandomStream&) = delete;

 private:
  std::optional<at::Generator> before_;
  OperatorRulesOn on_;
};

}  // namespace lockstep
