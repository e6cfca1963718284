#pragma once

#include <optional>
#include <string>

#include "lockstep/record/evaluation_result.h"
#include "lockstep/train/evaluation/evaluation_choice.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// Reads what a run was told, from its folder. Throws DataError for a folder that holds no run.
TrainOptions options_of_run(const std::string& folder);

/// Returns of a run's options what an evaluation needs: model, data and how they are read,
/// precision. Training images are not augmented, and nothing is spread.
TrainOptions evaluation_options(const TrainOptions& run);

/// Finds the weights in a run's folder; without a wish its best ones, or the last where no epoch
/// was compared. Throws DataError where there are none.
WeightsSource weights_of_run(const std::string& folder, std::optional<Which> which);

}  // namespace lockstep
