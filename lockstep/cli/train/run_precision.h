#pragma once

#include <optional>

#include "lockstep/train/options/options.h"

namespace lockstep::cli {

/// Returns the precision of the snapshot that these options resume from; nothing if they resume
/// none, or none can be read. Whether it is whole is not checked here.
std::optional<Precision> resumed_precision(const TrainOptions& options);

}  // namespace lockstep::cli
