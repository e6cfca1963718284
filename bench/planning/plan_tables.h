#pragma once

#include "bench/planning/plan_section.h"
#include "lockstep/report/page/page.h"

namespace lockstep::bench {

/// The tables of a plan's report.
page::Table choices_table(const plan::Answer& answer);
page::Table impossible_table(const plan::Answer& answer);
page::Table scenarios_table(const PlanReport& report);
page::Table confirmed_table(const PlanReport& report);

/// Where the time of a step goes, for each of these choices.
page::Table explanation_table(const std::vector<const plan::Choice*>& choices);

/// Returns the fastest choice of each kind of way that fits, the fastest first.
std::vector<const plan::Choice*> best_of_kinds(const plan::Answer& answer);

}  // namespace lockstep::bench
