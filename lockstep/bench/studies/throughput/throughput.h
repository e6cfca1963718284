#pragma once

#include "lockstep/bench/experiment/study.h"
#include "lockstep/bench/studies/study_options.h"

namespace lockstep::bench {

/// Makes the study "what does a sample cost": ResNet50 on the mock loader, on one place, spread
/// with the same batch, with four times the batch, and that in half precision. Its samples have the
/// values `seconds_a_sample` (without the first steps), `samples_per_s`, `first_step_seconds`,
/// `timed_steps`, `data_share`, `skipped_steps`.
Study throughput_study(const StudyOptions& options);

}  // namespace lockstep::bench
