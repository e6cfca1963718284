#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

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

/// Makes the study. Its grid is the study's own, or the part of it that takes a hundred seconds on
/// two cores.
Study make_study(const StudyOptions& options);

/// Throws DataError or InvalidArgument when the set is not there.
void prepare(const StudyOptions& options, const std::filesystem::path& output);

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

}  // namespace lockstep::bench::data_parallel
