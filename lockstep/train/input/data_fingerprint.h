#pragma once

#include <string>

#include "lockstep/train/input/dataset_sources.h"

namespace lockstep {

/// Gives a short text that is most likely another one for other training data: of all labels, and
/// of some images that lie in memory, or some names of files. It finds a mistake, no forgery.
std::string data_fingerprint(const DatasetSource& source);

}  // namespace lockstep
