#include "lockstep/cli/data/data_progress.h"

#include <iostream>
#include <unistd.h>

namespace lockstep::cli {
namespace {

constexpr auto kPause = std::chrono::milliseconds(100);
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

DataProgress::DataProgress(std::string what)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {}

void DataProgress::show(std::uint64_t done, std::uint64_t of) {
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || of == 0 || now - last_ < kPause) return;
  last_ = now;
  shown_ = true;
  const auto percent = static_cast<double>(done) / static_cast<double>(of) * 100;
  std::cerr << kClearLine << what_ << ' ' << static_cast<int>(percent) << " % of " << of
            << std::flush;
}

void DataProgress::notice(const std::string& text) {
  clear();
  std::cerr << "lockstep: " << text << std::endl;
}

void DataProgress::clear() {
  if (shown_) std::cerr << kClearLine << std::flush;
  shown_ = false;
}

}  // namespace lockstep::cli
