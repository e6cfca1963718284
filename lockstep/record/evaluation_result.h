#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/record/metrics.h"

namespace lockstep {

/// The counts of samples of each class, by the class that they were taken for.
///
///     Confusion confusion(10);
///     confusion.add(3, 5);   // a cat, taken for a dog
class Confusion {
 public:
  /// Samples of a class, and those of them that were taken for it.
  struct OfClass {
    std::int64_t samples = 0;
    std::int64_t right = 0;

    /// Absent without samples.
    std::optional<double> accuracy() const;
  };

  /// Samples of one class that were taken for another.
  struct Mistake {
    std::int64_t label = 0;
    std::int64_t predicted = 0;
    std::int64_t count = 0;

    friend bool operator==(const Mistake&, const Mistake&) = default;
  };

  explicit Confusion(std::int64_t classes = 0);

  /// Counts a sample; a class outside [0, classes()) is an InvalidArgument.
  void add(std::int64_t label, std::int64_t predicted, std::int64_t samples = 1);

  std::int64_t classes() const { return static_cast<std::int64_t>(of_class_.size()); }
  std::int64_t count(std::int64_t label, std::int64_t predicted) const;
  const std::vector<OfClass>& of_class() const { return of_class_; }

  /// Returns the counts that are not 0, by class and what it was taken for.
  const std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>& counts() const {
    return counts_;
  }

  /// Returns the most frequent mistakes, the first of equal ones by class.
  std::vector<Mistake> mistakes(std::size_t most) const;

 private:
  std::vector<OfClass> of_class_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> counts_;
};

/// A score of each class or label, by number.
struct ClassScores {
  std::string name;                           ///< in JSON
  std::string title;                          ///< in tables
  std::vector<std::optional<double>> values;  ///< nothing: of a class that is nowhere

  friend bool operator==(const ClassScores&, const ClassScores&) = default;
};

/// A sample, and the class that a model took it for, in a classification.
struct Judgement {
  std::int64_t index = 0;  ///< within its part of the set
  std::optional<std::int64_t> label = {};
  std::optional<std::int64_t> predicted = {};
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
  std::string warning;           ///< changes made to the weights on load; empty if none
  std::string data_remark = {};  ///< about what of a folder is not read; empty: nothing
  Scores scores;
  std::int64_t samples = 0;                  ///< that were counted
  std::int64_t skipped = 0;                  ///< whose files could not be read
  std::vector<std::string> class_names;      ///< as many as the model has classes or labels
  std::vector<ClassScores> of_classes = {};  ///< of tasks that are no classification
  Confusion confusion;                       ///< of a classification
  std::vector<WorstSample> worst;            ///< the worst first
};

}  // namespace lockstep
