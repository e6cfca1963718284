#pragma once

#include <optional>

#include "lockstep/train/input/dataset_sources.h"

namespace lockstep {

/// Opens the options' data set where a plugin offers it; nothing where none does.
///
/// Throws DataError with the plugin's words if it cannot be opened or is not whole, InvalidArgument
/// for augmentation and sizes, which are for images that we read ourselves.
std::optional<DatasetSource> open_plugin_data(const TrainOptions& options);

}  // namespace lockstep
