#pragma once

#include <cstdint>
#include <tuple>

#include "lockstep/nn/models/clone.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// Is the study's small net, 402,442 parameters with 10 classes. Takes [N, 1, 28, 28].
///
///     0 conv 1-32 3x3 padding 1, ReLU, pool 2   3 flatten   4 linear 6272-64, 5 ReLU   6 linear
///     64-classes
///
/// Its layers: input and those numbers.
class MnistSmallImpl final : public CloneByArguments<MnistSmallImpl, ModelImpl> {
 public:
  explicit MnistSmallImpl(std::int64_t classes);
  std::tuple<std::int64_t> arguments() const { return {classes_}; }

 private:
  std::int64_t classes_;
};

/// Is the study's large net, 4,104,202 parameters with 10 classes. Takes [N, 1, 28, 28].
///
///     0, 3, 6 conv 1-128-256-512 3x3 padding 1, each with ReLU and pool 2   9 flatten
///     10 linear 4608-512, 11 ReLU   12 linear 512-512, 13 ReLU   14 linear 512-classes
///
/// Its layers: input and those numbers.
class MnistLargeImpl final : public CloneByArguments<MnistLargeImpl, ModelImpl> {
 public:
  explicit MnistLargeImpl(std::int64_t classes);
  std::tuple<std::int64_t> arguments() const { return {classes_}; }

 private:
  std::int64_t classes_;
};

}  // namespace lockstep::nn
