#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "lockstep/nn/models/clone.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// What one VGG differs in from another.
struct VggShape {
  const char* name;
  std::array<std::int64_t, 5> convolutions;  ///< in each group, which a pool of 2 ends
  bool batch_norm;                           ///< after each convolution
};

inline constexpr VggShape kVgg11{"vgg11", {1, 1, 2, 2, 2}, false};
inline constexpr VggShape kVgg11Bn{"vgg11-bn", {1, 1, 2, 2, 2}, true};
inline constexpr VggShape kVgg13{"vgg13", {2, 2, 2, 2, 2}, false};
inline constexpr VggShape kVgg13Bn{"vgg13-bn", {2, 2, 2, 2, 2}, true};
inline constexpr VggShape kVgg16{"vgg16", {2, 2, 3, 3, 3}, false};
inline constexpr VggShape kVgg16Bn{"vgg16-bn", {2, 2, 3, 3, 3}, true};
inline constexpr VggShape kVgg19{"vgg19", {2, 2, 4, 4, 4}, false};
inline constexpr VggShape kVgg19Bn{"vgg19-bn", {2, 2, 4, 4, 4}, true};

/// Is torchvision's VGG: its names, its order, its initialisation, dropout 0.5.
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
