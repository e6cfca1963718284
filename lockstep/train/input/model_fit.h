#pragma once

#include <cstdint>

#include "lockstep/data/samples.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// Returns the bytes of memory that this process may use: those of the machine, or of its cgroup.
std::int64_t usable_memory();

/// Throws InvalidArgument if decoded images are to take more than so much memory.
void check_cache_fits(std::int64_t bytes, std::int64_t memory);

/// Throws InvalidArgument for images that vanish in the model's pools, and for a number of classes
/// or a batch (of the whole set at most) that surely has no room in this much memory.
void check_model_fits(const TrainOptions& options, const data::Samples& set, std::int64_t classes,
    std::int64_t memory);

}  // namespace lockstep
