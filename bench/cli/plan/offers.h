#pragma once

#include <string>
#include <vector>

#include "bench/cli/plan/plan_flags.h"
#include "lockstep/plan/answer.h"
#include "lockstep/plan/model_profile.h"

namespace lockstep::cli {

/// A profile and what is asked about it: of the machine that was measured, or of one device.
struct Offer {
  plan::ModelProfile profile;
  plan::Question question;
};

/// Returns the profile as the command wants it: in its precision, where that is asked of a device
/// that is not here. Throws InvalidArgument for a precision that no device has a rate for.
plan::ModelProfile in_asked_precision(plan::ModelProfile profile, const PlanCommand& command);

/// Completes a command by what its profile says of the trainings that it was measured by, so that
/// what is confirmed is trained likewise. Throws InvalidArgument for flags after -- that are
/// others.
void train_as_measured(const plan::ModelProfile& profile, PlanCommand& command);

/// Returns an offer for each device of the command, with its price and the rate that is said of it;
/// without devices that of the profile alone. What the question says of memory and links holds for
/// all; a device has its own where it says nothing.
std::vector<Offer> offers_of(const plan::ModelProfile& profile, const PlanCommand& command);

}  // namespace lockstep::cli
