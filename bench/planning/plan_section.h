#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/planning/measure_profile.h"
#include "lockstep/plan/answer.h"
#include "lockstep/record/profile/profile.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// A choice that was trained for some steps.
struct Confirmed {
  std::size_t choice = 0;   ///< of the answer
  double step_seconds = 0;  ///< measured
};

/// Trains the fastest choices that this machine has the cores for, so many at most, for some steps
/// each, and returns what they took, in the order of the choices.
std::vector<Confirmed> confirm(const plan::Answer& answer, std::size_t most,
    const MeasureRequest& request, const CellPaths& paths,
    const std::function<void(const std::string&)>& say);

/// Returns the confirmed choice with the highest rate, or what the answer picked where nothing was
/// confirmed.
std::optional<std::size_t> pick_of(
    const plan::Answer& answer, const std::vector<Confirmed>& confirmed);

/// The answer to a question that was changed.
struct ComparedScenario {
  std::string text;  ///< of the change
  plan::Answer answer;
};

/// A machine of an answer, with its costs.
struct PlannedMachine {
  plan::ModelProfile profile;
  plan::Machine machine;
};

/// An answer and what else was asked.
struct PlanReport {
  plan::Answer answer;
  std::vector<PlannedMachine> machines = {};  ///< empty: that of the answer's question
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

/// Returns the fastest choice of each kind of way that fits, the fastest first.
std::vector<const plan::Choice*> best_of_kinds(const plan::Answer& answer);

}  // namespace lockstep::bench
