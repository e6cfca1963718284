#pragma once

#include "lockstep/bench/page/section.h"
#include "lockstep/plan/answer.h"

namespace lockstep::bench {

/// Reports an answer: what to take and why, all ways, those that are impossible, time and money as
/// a figure, and the step of the way that is picked as a timeline.
page::Section section_of_plan(const plan::Answer& answer);

/// Writes an answer as one JSON object of one line.
std::string plan_json(const plan::Answer& answer);

}  // namespace lockstep::bench
