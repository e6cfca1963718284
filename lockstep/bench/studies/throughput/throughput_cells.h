#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/bench/experiment/results.h"

namespace lockstep::bench {

inline constexpr const char* kSecondsASample = "seconds_a_sample";

/// Is the height and width of the study's images.
inline constexpr int kStudyImageSize = 224;

/// Is a cell of the throughput study with its coordinates as numbers.
struct ThroughputCell {
  std::string way;  ///< serial, dp, ddp
  int places = 1;
  int batch = 1;          ///< images a step, on all places together
  std::string precision;  ///< 32, bf16-mixed, 16-mixed
  int image_size = 224;
  int steps = 1;
  CellResult result;

  bool is_half() const { return precision != "32"; }

  /// Tells whether it has a number, and its places had cores of their own.
  bool is_fair() const { return result.reason.empty() && !result.oversubscribed; }
};

/// Sorts samples into the study's cells.
std::vector<ThroughputCell> throughput_cells(const Study& study, std::span<const Sample> samples);

/// Finds the one place that all ways begin from, at the image's size; nullptr if there is none.
const ThroughputCell* one_place(const std::vector<ThroughputCell>& cells, int image_size);

/// Finds the cell of the same places, batch, precision and size that goes another way; nullptr if
/// there is none.
const ThroughputCell* other_way(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell, const std::string& way);

/// Foretells seconds a sample from those of one place: divided by how many times its cores the cell
/// has, so that nothing is lost by spreading. Nothing for half precision, whose gain no other cell
/// tells, and where one place was not measured.
std::optional<double> predicted_seconds(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell);

/// Gives the seconds a sample that the study published; nothing for ways that it lacks, and for
/// images of another size.
std::optional<double> published_seconds(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell);

/// Says with what they were measured.
inline constexpr const char* kPublishedThroughputWith =
    "Python PyTorch's DataParallel and apex on four NVIDIA Tesla V100s, batches of 128 and 512, "
    "5000 steps";

}  // namespace lockstep::bench
