#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/experiment/study.h"
#include "lockstep/core/error.h"
#include "lockstep/plan/model_profile.h"
#include "lockstep/plan/way.h"
#include "lockstep/record/run_folder.h"

namespace lockstep::bench {

/// The words of a command.
using Words = std::vector<std::string>;

/// Adds a part to a command: a word, a number, or words.
template <class Part>
void add_words(Words& words, const Part& part) {
  words.push_back(concat(part));
}
inline void add_words(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// Makes a command of words, numbers and lists of words.
///
///     train_command("--model", "resnet50", "--batch-size", 32, spreading_flags("ddp", 2))
template <class... Parts>
Words words_of(const Parts&... parts) {
  Words words;
  (add_words(words, parts), ...);
  return words;
}
template <class... Parts>
Words train_command(const Parts&... parts) {
  return words_of("train", parts...);
}

/// Returns the flags by which `lockstep train` spreads over this many places: dp, ddp, or serial.
Words spreading_flags(const std::string& way, int places);

/// Returns the cell with its training on a type of device; empty: as it is. Its name tells, so that
/// samples of another device are not taken for its own.
StudyCell on_device(StudyCell cell, const std::string& device);

/// Says why hosts that are made within this machine do not train on its devices.
inline constexpr const char* kSharedDevices =
    "hosts of this machine would share its devices; name others by --nodes";

/// Returns how many cores a place is: a fourth of them, so that up to four places differ in nothing
/// else, and at least one.
inline int cores_a_place(int cores) { return std::max(1, cores / 4); }

/// Returns the variable that limits the threads of a process.
inline Words threads(int count) { return {concat("OMP_NUM_THREADS=", count)}; }

/// The values of a sample by name.
using SampleValues = std::map<std::string, double>;

/// Reads the summary.json that a sample's run left; without one throws a DataError.
SummaryFacts read_run_summary(const std::filesystem::path& run);

/// Returns a value, or NaN where there is none: what a sample notes as `null`.
double or_nan(const std::optional<double>& value);

/// Counts the training images of `fashion-mnist`, `fashion-mnist:DIR` or `mnist:DIR` by their
/// labels. Another name is an InvalidArgument, files that are missing or wrong are a DataError.
std::int64_t training_images(const std::string& data);

/// Returns how many bytes of memory a run may use: what the machine has, or less where a cgroup's
/// limit says so; 0: not known.
std::int64_t machine_memory();

/// Totals over some steps of a run's training.
struct TimedSteps {
  std::int64_t count = 0;
  double seconds = 0;
  double data_seconds = 0;  ///< of them, waiting for data
  double comm_seconds = 0;  ///< of them, waiting for other ranks in backward
  double samples = 0;       ///< of all ranks

  TimedSteps& operator+=(const TimedSteps& later);
};

/// Reads the steps that each line of a metrics.jsonl covers; lines of training without a time are a
/// DataError.
std::vector<TimedSteps> read_steps(const std::filesystem::path& file);

/// Predicts, as `lockstep plan` does, the seconds of a step of `batch` samples from those of a
/// whole step on one place: computing is shared evenly, and gradients are sent while backward goes
/// on. `machine` has as many places as the way needs.
double predicted_step(
    const plan::WholeStep& alone, const plan::Machine& machine, const plan::Way& way, double batch);

}  // namespace lockstep::bench
