#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// What a sample of ResNet50 costs: on one place, spread by DataParallel or DDP, with a larger
/// batch, in half precision.
namespace lockstep::bench::throughput {

inline constexpr int kStudyImageSize = 224;

/// A point of the grid.
struct Point {
  std::string way = "serial";    ///< serial, dp, ddp
  int places = 1;                ///< replicas
  int batch = 128;               ///< images a step, on all places together
  std::string precision = "32";  ///< as `lockstep train --precision` takes it
  int image_size = kStudyImageSize;
  int steps = 5000;
  int log_interval = 50;  ///< steps covered by a line of metrics.jsonl; the first is not timed

  int batch_a_place() const { return batch / places; }
  bool is_half() const { return precision != "32"; }
  bool has_study_size() const { return image_size == kStudyImageSize; }
};

Study make_study(const StudyOptions& options);

/// Lists the grid: one place; dp and ddp with the same batch and with four times that; this in half
/// precision. In full it is the study's, on four places; else what takes a hundred seconds on two
/// cores, on as many places as there are cores, two at least and four at most.
std::vector<Point> grid(const StudyOptions& options);

/// Makes the cell of a point. One that needs more than `memory_bytes` is not measurable; 0: it is
/// not known how much there is.
StudyCell cell_of(const Point& point, const StudyOptions& options, std::int64_t memory_bytes);

/// Reads what a sample cost from a run's metrics.jsonl and summary.json. The steps of the first
/// line are left out: they pay for memory, kernels and buckets. Fewer than two lines are a
/// DataError.
SampleValues values_of(const std::filesystem::path& run);

}  // namespace lockstep::bench::throughput
