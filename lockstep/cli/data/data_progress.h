#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::cli {

/// The progress of a work on stderr, if that is a terminal: one line, ten times a second at most.
class DataProgress {
 public:
  explicit DataProgress(std::string what);
  DataProgress(const DataProgress&) = delete;
  DataProgress& operator=(const DataProgress&) = delete;

  /// Takes the line away.
  ~DataProgress() { clear(); }

  void show(std::uint64_t done, std::uint64_t of);

  /// Prints a line of its own.
  void notice(const std::string& text);

 private:
  void clear();

  std::string what_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace lockstep::cli
