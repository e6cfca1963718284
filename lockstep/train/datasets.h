#pragma once

#include <cstdint>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/train/options.h"

namespace lockstep {

/// Holds what a run trains on and what it is measured on.
struct Datasets {
  data::InMemoryImages train;
  data::InMemoryImages test;
};

/// Reads the named data set into memory, the training part `repeat` times over; `mock` makes images
/// that fit the model.
///
/// Throws InvalidArgument for an unknown name or a missing folder, DataError for bad files.
Datasets load_datasets(const DataSource& source, std::int64_t repeat, const std::string& model);

}  // namespace lockstep
