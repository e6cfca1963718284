#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/planning/confirmation.h"
#include "lockstep/plan/answer.h"
#include "lockstep/train/profile/profile.h"

namespace lockstep::bench {

/// The answer to a question that was changed.
struct ComparedScenario {
  std::string text;  ///< of the change
  plan::Answer answer;
};

/// An answer and what was asked besides.
struct PlanReport {
  plan::Answer answer;
  std::vector<ComparedScenario> scenarios = {};
  std::vector<Confirmed> confirmed = {};
  bool explains = false;                  ///< where the time of a step of each kind of way goes
  std::string remark = {};                ///< about how it was measured; empty: nothing
  std::optional<RunProfile> beside = {};  ///< of a run whose step is set beside the predicted one
};

/// Says what to take and why: what was trained overrules what was predicted.
std::string verdict_of(const PlanReport& report);

/// Reports what to take and why, all ways, those that are impossible, time and money as a figure,
/// and the step of the way that is picked as a timeline.
page::Section section_of_plan(const PlanReport& report);

/// Draws a predicted step, in milliseconds.
plot::Timeline timeline_of(const plan::Prediction& prediction, const std::string& id);

/// Writes an answer as one JSON object of one line.
std::string plan_json(const PlanReport& report);

}  // namespace lockstep::bench
