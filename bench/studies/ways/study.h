#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/experiment/cell_process.h"
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

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

/// Makes the study. Its samples have the values of values_of().
Study make_study(const StudyOptions& options);

/// Lists the grid: for each precision and batch one place, then all ways on the most places, which
/// decide, then those on fewer. One process also has the cores of several places. One place is
/// serial whatever the way. ddp+mp and ddp+pp have a point for each division of their places into
/// replicas of several stages, or one that says that there is none. A grid without a point is an
/// InvalidArgument.
std::vector<Point> grid(const StudyOptions& options);

/// Returns how many steps a run has, a quarter of them to warm up, after which a line of
/// metrics.jsonl comes: 4 at least.
struct RunLength {
  std::int64_t steps = 4;
  std::int64_t steps_a_line = 1;
};
RunLength run_length(std::int64_t images, int batch);

/// Makes the cell of a point; a batch that cannot be divided and what was refused before is not
/// measurable.
StudyCell cell_of(const Point& point, const StudyOptions& options);

/// Makes the same cell with a run of some seconds, to see how long others should be.
StudyCell probe_of(const Point& point, const StudyOptions& options);

/// Finds out before the first sample what the grid cannot know, and notes it in the options: which
/// cells `lockstep train --dry-run` refuses, and how many images make a run of some seconds.
///
/// Says on stderr what it does. Throws InvalidArgument if no cell can be trained, DataError if the
/// data cannot be read. A signal ends the process.
void explore(StudyOptions& options, const CellPaths& paths);

/// Reads a run's metrics.jsonl and summary.json. The steps that warm up are left out; a run that
/// has no others is a DataError.
SampleValues values_of(const Point& point, const std::filesystem::path& run, std::int64_t warm_up);

/// Finds one process with the fewest cores, of the same batch and precision; nullptr if there is
/// none.
const Cell* serial_of(const Cells& cells, const Cell& cell);

/// Estimates how many times as fast a cell is as serial_of(); nothing for that itself.
std::optional<Estimate> speed_up(const Cells& cells, const Cell& cell);

/// Returns the speed-up by the hardware: by how many times the cores of serial_of() it has, or the
/// devices.
std::optional<double> efficiency(const Cells& cells, const Cell& cell);

/// Names a cell for people, with what not all cells have in common.
std::string label(const Cells& cells, const Cell& cell);

/// The cells that the answer is about: of those that have a number and cores of their own.
struct Best {
  const Cell* first = nullptr;           ///< the fastest; nullptr: no cell has a number
  const Cell* second = nullptr;          ///< the next; nullptr: there is none
  std::vector<const Cell*> equals = {};  ///< those surely equal to the first, see verdict.h
  /// Of the first and its equals the one to use: with the fewest cores, of these the simplest.
  const Cell* taken = nullptr;
};
Best best_of(const Cells& cells);

/// Names the fastest cell's equals and says which to take, and why; empty if it has none.
std::string equals_text(const Cells& cells, const Best& best);

/// Tables of rates, and of what steps waited for.
std::vector<page::Table> tables(const Cells& cells);

/// The figure of all cells.
std::vector<plot::Figure> figures(const Cells& cells);

/// Answers which way is the fastest, how sure that is, what limits it, and how it is trained.
page::Conclusion conclusion(const Cells& cells);

}  // namespace lockstep::bench::ways
