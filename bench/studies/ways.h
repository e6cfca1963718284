#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "bench/experiment/sample_process.h"
#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// Which way of spreading pays for a user's own model on this machine: the grid is the user's.
namespace lockstep::bench::ways {

inline constexpr const char* kRate = "samples_per_s";
inline constexpr const char* kDataShare = "data_share";
inline constexpr const char* kCommShare = "comm_share";  ///< of ddp alone
inline constexpr const char* kPeakMemory = "peak_memory_bytes";

/// A point of the grid.
struct Point {
  std::string way = "serial";
  int places = 1;   ///< replicas times stages
  int stages = 1;   ///< of each replica
  int cores = 1;    ///< of all places; one process has those of several, too
  int batch = 128;  ///< images a step, on all places together
  std::string precision = "32";
  std::string schedule = {};  ///< of pp and ddp+pp; empty: what `lockstep train` takes

  int replicas() const { return places / stages; }
  int batch_a_replica() const { return batch / replicas(); }

  /// Names the way for people: `ddp on 2 places`, `ddp+mp on 4 places (2 x 2 stages)`, `one process
  /// on 2 cores`.
  std::string name() const;
};

/// Makes the study. Its grid has for each precision and batch one place, then all ways on the most
/// places, which decide, then those on fewer. One process also has the cores of several places. One
/// place is serial whatever the way. ddp+mp and ddp+pp have a point for each division of their
/// places into replicas of several stages, or one that says that there is none. A grid without a
/// point is an InvalidArgument; a batch that cannot be divided and what was refused before is not
/// measurable.
Study make_study(const StudyOptions& options);

/// The steps of a run, a quarter of them to warm up, after which a line of metrics.jsonl
/// comes: 4 at least.
struct RunLength {
  std::int64_t steps = 4;
  std::int64_t steps_a_line = 1;
};
RunLength run_length(std::int64_t images, int batch);

/// Finds out before the first sample what the grid cannot know, and notes it in the options: which
/// cells `lockstep train --dry-run` refuses, and how many images make a run of some seconds.
///
/// Says on stderr what it does. Throws InvalidArgument if no cell can be trained, DataError if the
/// data cannot be read. A signal ends the process.
void explore(StudyOptions& options, const CellPaths& paths);

/// Reads a run's metrics.jsonl and summary.json. The steps that warm up are left out; a run that
/// has no others is a DataError.
SampleValues values_of(const Point& point, const std::filesystem::path& run, std::int64_t warm_up);

}  // namespace lockstep::bench::ways
