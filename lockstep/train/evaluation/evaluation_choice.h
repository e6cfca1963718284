#pragma once

#include "lockstep/core/enum_names.h"

namespace lockstep {

/// The weights of a run: those of its best epoch, or its last ones.
enum class Which { kBest, kLast };
constexpr auto names_of(Which) {
  return std::array{EnumName{Which::kBest, "best"}, EnumName{Which::kLast, "last"}};
}

/// A part of a data set that weights are evaluated on.
enum class Split { kTest, kVal, kTrain };
constexpr auto names_of(Split) {
  return std::array{EnumName{Split::kTest, "test"}, EnumName{Split::kVal, "val"},
      EnumName{Split::kTrain, "train"}};
}

}  // namespace lockstep
