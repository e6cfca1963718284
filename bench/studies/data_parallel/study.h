#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// Whether a second device pays, with DataParallel or with DDP: two nets on MNIST's like, two
/// epochs, batch sizes per replica, places, both ways.
namespace lockstep::bench::data_parallel {

inline constexpr const char* kFirstEpoch = "first_epoch_seconds";
inline constexpr const char* kSecondEpoch = "second_epoch_seconds";

/// A point of the grid.
struct Point {
  std::string model = "mnist-small";
  int repeat = 1;              ///< passes over the set that make an epoch
  int batch = 128;             ///< images a step on each replica
  int places = 1;              ///< replicas
  std::string way = "serial";  ///< dp, ddp, or serial: the one place that both begin from
  int steps = 0;               ///< an epoch is cut after this many; 0: it is whole
};

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

/// Makes the study. Its samples have the values `first_epoch_seconds`, `second_epoch_seconds`,
/// `epoch_share` (below 1: the times are extrapolated from that part of an epoch),
/// `samples_per_s`, `train_loss`, `test_accuracy`.
Study make_study(const StudyOptions& options);

/// Throws DataError or InvalidArgument when the set is not there.
void prepare(const StudyOptions& options, const std::filesystem::path& output);

/// Lists the grid: the study's own, or the part of it that takes a hundred seconds on two cores.
std::vector<Point> grid(const StudyOptions& options);

StudyCell cell_of(const Point& point, const StudyOptions& options);

/// Reads the values of a run of two epochs from its summary.json.
///
/// `images` is how many a whole epoch has. Where the run's epochs were shorter, `epoch_share` is
/// the part of them, and times are extrapolated: the second epoch by its rate, the first by the
/// same rate and what it took longer, which is what starting cost. Another summary is a DataError.
SampleValues values_of(const std::filesystem::path& run, std::int64_t images);

/// The published times of one point of the study's grid.
struct PublishedEpochs {
  std::string model;  ///< `mnist-small` or `mnist-large`
  int repeat = 1;
  int batch = 128;  ///< images a step on each GPU
  int places = 1;   ///< GPUs
  double first_seconds = 0;
  std::optional<double> second_seconds = {};
};

/// Finds a point; nullptr where nothing was published.
const PublishedEpochs* find_published(const std::string& model, int repeat, int batch, int places);

/// Finds the cell of the same model, repeat and batch with other places; nullptr if there is none.
const Cell* sibling(const Cells& cells, const Cell& cell, int places, const std::string& way);

/// Estimates how many times as fast the second epoch is as on one place; nothing for one place.
std::optional<Estimate> speed_up(const Cells& cells, const Cell& cell);

/// Estimates how many times as long as one of ddp a second epoch of dp takes; `cell` is either.
std::optional<Estimate> dp_over_ddp(const Cells& cells, const Cell& cell);

/// Returns how many times as fast as one GPU the published second epoch of DataParallel is; nothing
/// where the study has no number.
std::optional<double> published_speed_up(const Cell& cell);

/// Tables of epochs, of speed-ups, of dp beside ddp, and of what was learned.
std::vector<page::Table> tables(const Cells& cells);

/// Figures of each net and number of repeats: first and second epoch, speed-up, dp beside ddp.
std::vector<plot::Figure> figures(const Cells& cells);

/// Answers for each net which way pays on the most places that had cores of their own, by how much
/// and how sure that is.
page::Conclusion conclusion(const Cells& cells);

}  // namespace lockstep::bench::data_parallel
