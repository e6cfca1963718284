#pragma once

#include "lockstep/nn/autocast.h"
#include "lockstep/train/options/precision.h"

namespace lockstep {

/// Begins the scope in which a model computes with that precision.
inline nn::Autocast autocast_of(Precision precision) {
  const auto type = precision == Precision::k16Mixed ? at::kHalf : at::kBFloat16;
  return nn::Autocast(at::kCPU, type, precision != Precision::k32);
}

}  // namespace lockstep
