#pragma once

#include <cstddef>

#include "lockstep/parallel/place/place.h"
#include "lockstep/record/evaluation_result.h"
#include "lockstep/train/evaluation/evaluation_choice.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// A request to evaluate weights on a data set.
struct EvaluationRequest {
  TrainOptions options;  ///< as evaluation_options() gives them; the plugin is loaded already
  WeightsSource weights;
  Split split = Split::kTest;
  std::size_t worst = 0;  ///< samples to show
};

/// Evaluates weights as the trainer would, in one place: the scores are those that a run of one
/// rank recorded for the same weights, bit for bit.
///
/// Throws DataError for weights that are damaged or of another model, and for bad data;
/// InvalidArgument for an unknown model, set, or part of a set.
EvaluationResult evaluate_weights(const EvaluationRequest& request, const Place& place);

}  // namespace lockstep
