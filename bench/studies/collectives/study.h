#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/collectives/collective.h"
#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// At which sizes collectives over shared memory and over threads are faster than Gloo; each cell
/// is a sweep over sizes.
namespace lockstep::bench::collectives {

/// A way of carrying collectives that the study compares.
struct Way {
  std::string name;   ///< of the setting `way`, and in files' names
  std::string title;  ///< in tables and figures
  std::vector<std::string> flags;
};

/// What the others are compared with.
inline constexpr const char* kGloo = "gloo";

/// Lists the ways, Gloo last.
const std::vector<Way>& ways();

/// A point of the grid: a sweep over sizes.
struct Point {
  Collective collective = Collective::kAllReduce;
  std::string way = {};
  int ranks = 2;
  std::int64_t largest = 0;  ///< bytes of a message

  /// Returns the sizes of the messages, in bytes.
  std::vector<std::int64_t> sizes() const;
};

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

/// Makes the study. Its samples have the values `seconds_BYTES` and `copy_seconds_BYTES` of each
/// size, `smallest_microseconds` and `largest_milliseconds`.
Study make_study(const StudyOptions& options);

/// Lists the grid: the whole one, or the part of it that takes forty seconds on two cores.
std::vector<Point> grid(bool full);

StudyCell cell_of(const Point& point, const StudyOptions& options);

/// Return the name of a sample's value: the median seconds of a call, or of a copy.
std::string seconds_value(std::int64_t bytes);
std::string copy_value(std::int64_t bytes);

/// One collective among one number of ranks, by every way.
struct Panel {
  Collective collective = Collective::kAllReduce;
  int ranks = 2;
  std::vector<std::int64_t> sizes = {};
  std::map<std::string, CellResult> ways = {};  ///< by the way's name

  /// Returns the way's cell; nullptr when the study has none.
  const CellResult* way(const std::string& name) const;

  /// True if there are more ranks than cores.
  bool oversubscribed() const;

  /// Estimates the seconds of a call.
  std::optional<Estimate> seconds(const std::string& way, std::int64_t bytes) const;

  /// Estimates how many times the way's time Gloo takes; nothing for Gloo.
  std::optional<Estimate> gloo_over(const std::string& way, std::int64_t bytes) const;

  /// Returns the seconds that the least of reading and writing takes at the rate of a copy: the
  /// median over the copies that all the panel's runs made.
  std::optional<double> predicted_seconds(std::int64_t bytes) const;

  /// Returns gigabytes a second times seconds: what a message counts for the bus bandwidth.
  double bus_gigabytes(std::int64_t bytes) const;

  /// Returns what a reader must know of a row: what is odd about which way. Empty if nothing.
  std::string note(std::int64_t bytes) const;

  /// Returns `all_reduce of 2 ranks`.
  std::string name() const;
};

/// Sorts cells into panels, in their order.
std::vector<Panel> panels_of(const Cells& cells);

/// Returns a size as text: `64 KiB`.
std::string size_text(std::int64_t bytes);

/// Tables of the times of calls by size and way beside what a copy predicts, the two bandwidths,
/// how many times as fast as Gloo each way is, and the times of the smallest message.
std::vector<page::Table> tables(const Cells& cells);

/// Figures of each panel: time, bus bandwidth and how many times as fast as Gloo over the size of
/// the message, on logarithmic axes.
std::vector<plot::Figure> figures(const Cells& cells);

/// Answers at which sizes shared memory is faster than Gloo, by how much and how sure that is; only
/// of ranks that had cores of their own.
page::Conclusion conclusion(const Cells& cells);

}  // namespace lockstep::bench::collectives
