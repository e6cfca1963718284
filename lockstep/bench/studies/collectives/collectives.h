#pragma once

#include "lockstep/bench/experiment/study.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Makes the study "at which sizes is ours faster than Gloo": collectives over shared memory, over
/// threads and over Gloo, each cell a sweep over sizes. Its samples have the values `seconds_BYTES`
/// and `copy_seconds_BYTES` of each size, `smallest_microseconds` and `largest_milliseconds`.
Study collectives_study(const StudyOptions& options);

}  // namespace lockstep::bench
