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

/// Returns the choices that this machine has the cores for in the order in which they are worth a
/// training: the pick, what cannot be told apart from it, then the fastest.
std::vector<std::size_t> confirmable(const plan::Answer& answer, const MeasureRequest& request);

/// Trains so many of them at most for some steps each, and returns what they took.
std::vector<plan::TrainedStep> confirm(const plan::Answer& answer, std::size_t most,
    const MeasureRequest& request, const CellPaths& paths,
    const std::function<void(const std::string&)>& say);

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
  std::vector<plan::TrainedStep> confirmed = {};
  /// Ways that cannot be told apart and can be trained here; below 2: nothing is offered.
  std::size_t offered = 0;
  bool explains = false;                  ///< where the time of a step of each kind of way goes
  std::string remark = {};                ///< about how it was measured; empty: nothing
  std::optional<RunProfile> beside = {};  ///< of a run whose step is set beside the predicted one
};

/// Returns the answer with what was confirmed in the place of what was predicted.
plan::Answer final_answer(const PlanReport& report);

/// Says what to take and why, and how to learn more about what cannot be told apart.
std::string verdict_of(const PlanReport& report);

/// Returns the choices that a reader compares, in their order: of few all, of many the pick and the
/// best on each machine; of one device also what cannot be told apart from the pick, and the
/// fastest of each kind.
std::vector<std::size_t> shown_choices(const plan::Answer& answer);

/// Reports what to take and why, the ways that are worth a look and then all, those that are
/// impossible, time and money as a figure, and the step of the way that is picked as a timeline.
page::Section section_of_plan(const PlanReport& report);

/// Writes that section for a terminal: what to take first, and of the ways those worth a look.
std::string text_of_plan(const page::Section& section);

/// Makes a page of that section, in the same order; it has all ways, too.
page::Page page_of_plan(const page::Section& section);

/// Draws a predicted step, in milliseconds.
plot::Timeline timeline_of(const plan::Prediction& prediction, const std::string& id);

/// Writes an answer as one JSON object of one line.
std::string plan_json(const PlanReport& report);

/// Returns the fastest choice of each kind of way that fits, the fastest first.
std::vector<const plan::Choice*> best_of_kinds(const plan::Answer& answer);

}  // namespace lockstep::bench
