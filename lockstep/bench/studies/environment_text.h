#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "lockstep/bench/experiment/sample.h"

namespace lockstep::bench {

/// Says in a few lines with what samples were measured: of a file that `lockstep env --json` could
/// have written what matters, and of the samples when, how evenly and how undisturbed. A file that
/// is missing is told; one that is no JSON is a DataError.
std::string environment_text(const std::filesystem::path& file, std::span<const Sample> samples);

}  // namespace lockstep::bench
