#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

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

}  // namespace lockstep
