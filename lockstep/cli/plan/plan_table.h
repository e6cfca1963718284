#pragma once

#include "lockstep/cli/plan/plan_flags.h"
#include "lockstep/core/flag_table.h"

namespace lockstep::cli {

/// Returns the flags of `lockstep plan`, each declared once.
const FlagTable<PlanCommand>& plan_table();

}  // namespace lockstep::cli
