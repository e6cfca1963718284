#pragma once

#include "lockstep/bench/experiment/study.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Makes the study "what does a net cost that is cut over two places, and what does a pipeline win
/// back": ResNet50 on one place, cut, pipelined at several split sizes and by several schedules.
/// Its samples have the values `run_seconds`, `run_variance`, `repeats`, `peak_memory_bytes`.
Study pipeline_study(const StudyOptions& options);

}  // namespace lockstep::bench
