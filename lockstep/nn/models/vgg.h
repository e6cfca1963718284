#pragma once

#include <cstdint>
#include <tuple>

#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/clone.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// torchvision's VGG: its names, its order, its initialisation, dropout 0.5.
///
/// Takes [N, 3, H, W] of at least 32 pixels a side, made for 224, fastest channels-last; others are
/// converted once, at the start. Its layers: input, features.N, avgpool, flatten, classifier.N,
/// numbered as torchvision's.
class VggImpl final : public CloneByArguments<VggImpl, ModelImpl> {
 public:
  VggImpl(const VggShape& shape, std::int64_t classes);
  std::tuple<VggShape, std::int64_t> arguments() const { return {shape_, classes_}; }

 private:
  void append_features();
  void append_classifier();
  void initialise();

  VggShape shape_;
  std::int64_t classes_;
};

}  // namespace lockstep::nn
