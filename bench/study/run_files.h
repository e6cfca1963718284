#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/record/run_folder.h"

namespace lockstep::bench {

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

}  // namespace lockstep::bench
