#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/collectives/sweep.h"
#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// At which sizes collectives over shared memory and over threads are faster than Gloo; each cell
/// is a sweep over sizes.
namespace lockstep::bench::collectives {

/// A point of the grid: a sweep over sizes.
struct Point {
  Collective collective = Collective::kAllReduce;
  std::string way = {};
  int ranks = 2;
  std::int64_t largest = 0;  ///< bytes of a message

  /// Returns the sizes of the messages, in bytes.
  std::vector<std::int64_t> sizes() const;
};

/// Makes the study: the whole grid, or the part of it that takes forty seconds on two cores. Its
/// samples have the values `seconds_BYTES` and `copy_seconds_BYTES` of each size,
/// `smallest_microseconds` and `largest_milliseconds`.
Study make_study(const StudyOptions& options);

/// Return the name of a sample's value: the median seconds of a call, or of a copy.
std::string seconds_value(std::int64_t bytes);
std::string copy_value(std::int64_t bytes);

}  // namespace lockstep::bench::collectives
