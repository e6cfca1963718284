#pragma once

#include <filesystem>

#include "lockstep/bench/experiment/study.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Makes the study "does it pay to scale out": the same training for a fixed time on 1, 2, 4 and 8
/// nodes, with the learning rate scaled by the root of their number; and once more with a worker
/// that is killed in the middle. What its samples' values are, scale_out/node_values.h says.
Study scale_out_study(const StudyOptions& options);

/// Draws images into OUTPUT/data/NAME, of 20 classes for the whole grid, unless they are there or
/// others are named; throws DataError or InvalidArgument when what is named is not there.
void prepare_scale_out(const StudyOptions& options, const std::filesystem::path& output);

}  // namespace lockstep::bench
