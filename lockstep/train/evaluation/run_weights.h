#pragma once

#include <optional>
#include <string>

#include "lockstep/core/enum_names.h"
#include "lockstep/record/evaluation_result.h"
#include "lockstep/train/options/options.h"

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

/// Reads what a run was told, from its folder. Throws DataError for a folder that holds no run.
TrainOptions options_of_run(const std::string& folder);

/// Returns of a run's options what an evaluation needs: model, data and how they are read,
/// precision. Training images are not augmented, and nothing is spread.
TrainOptions evaluation_options(const TrainOptions& run);

/// Finds the weights in a run's folder; without a wish its best ones, or the last where no epoch
/// was compared. Throws DataError where there are none.
WeightsSource weights_of_run(const std::string& folder, std::optional<Which> which);

}  // namespace lockstep
