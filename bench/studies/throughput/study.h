#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// What a sample of ResNet50 costs: on one place, spread by DataParallel or DDP, with a larger
/// batch, in half precision.
namespace lockstep::bench::throughput {

inline constexpr const char* kSecondsASample = "seconds_a_sample";
inline constexpr int kStudyImageSize = 224;
inline constexpr int kBatchFactor = 4;  ///< how many times the first batch the second is

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

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

/// Makes the study. Its samples have the values of values_of().
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

/// Finds the one place that all ways begin from, at the image's size; nullptr if there is none.
const Cell* one_place(const Cells& cells, int image_size);

/// Finds the cell of the same places, batch, precision and size that goes another way; nullptr if
/// there is none.
const Cell* other_way(const Cells& cells, const Cell& cell, const std::string& way);

/// Predicts seconds per sample from those of one place, assuming linear scaling with the cores.
/// Nothing for half precision, whose gain no other cell shows, and where one place was not
/// measured.
std::optional<double> predicted_seconds(const Cells& cells, const Cell& cell);

/// Returns the seconds a sample that the study published; nothing for ways that it lacks, and for
/// images of another size.
std::optional<double> published_seconds(const Cells& cells, const Cell& cell);

/// One of the study's ratios of seconds a sample: how many times as fast `cell` is as `base`.
struct Ratio {
  /// The change: one place became several, the batch also larger, or float32 half.
  enum class Change { kPlaces, kPlacesAndBatch, kPrecision };

  Change change = Change::kPlaces;
  const Cell* base = nullptr;  ///< of the cells that it was made of, as `cell`
  const Cell* cell = nullptr;
  std::optional<Estimate> measured;
  std::optional<double> predicted;  ///< linear scaling; none for half precision
  std::optional<double> published;

  /// Names both sides: `one place / dp, 4 times the batch`.
  std::string name() const;

  /// True if both have a number and cores of their own.
  bool is_fair() const { return base->is_fair() && cell->is_fair() && measured.has_value(); }
};

/// Lists the ratios that the cells have, dp's before ddp's; each in the study's order.
std::vector<Ratio> ratios(const Cells& cells);

/// Returns how many times as long a sample takes with dp as with ddp; nothing without both. `cell`
/// is either.
std::optional<Estimate> dp_over_ddp(const Cells& cells, const Cell& cell);

/// Tables of the cost of a sample, of the ratios, and of dp beside ddp.
std::vector<page::Table> tables(const Cells& cells);

/// Figures of the cost of a sample, and of the ratios.
std::vector<plot::Figure> figures(const Cells& cells);

/// Answers whether spreading, a larger batch or half precision make a sample cheaper, by how much
/// and how sure that is.
page::Conclusion conclusion(const Cells& cells);

}  // namespace lockstep::bench::throughput
