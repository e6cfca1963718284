#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/record/confusion.h"
#include "lockstep/record/metrics.h"

namespace lockstep {

/// A sample, and the class that a model took it for.
struct Judgement {
  std::int64_t index = 0;  ///< within its part of the set
  std::int64_t label = 0;
  std::int64_t predicted = 0;
  double loss = 0;
};

/// A sample on which the model lost much.
struct WorstSample {
  Judgement judgement;
  std::string name;               ///< its file, or the set and its number
  std::vector<std::uint8_t> png;  ///< its picture as a file, as the model sees it; empty: none
};

/// Weights that are evaluated: their file, and what it says of itself, for people.
struct WeightsSource {
  std::string file;
  std::string which;   ///< `best` or `last` of a run; `file` where one was named
  std::string remark;  ///< `epoch 3, loss 0.41`; may be empty
};

/// The findings about trained weights on a data set. Plain data: the reports are made of it.
struct EvaluationResult {
  std::string model;
  std::string data;
  std::string split;  ///< `test`, `val` or `train`
  std::string precision;
  std::string loss;         ///< the name of the one that was measured
  std::string loss_plugin;  ///< library that it comes from; empty: one of ours
  WeightsSource weights;
  std::string warning;  ///< changes made to the weights on load; empty if none
  Scores scores;
  std::int64_t samples = 0;              ///< that were counted
  std::int64_t skipped = 0;              ///< whose files could not be read
  std::vector<std::string> class_names;  ///< as many as the model has classes
  Confusion confusion;
  std::vector<WorstSample> worst;  ///< the worst first
};

}  // namespace lockstep
