#pragma once

#include <string>

#include "lockstep/plan/answer.h"

namespace lockstep::plan {

/// A change of the machines or the training of a question.
struct Scenario {
  std::string text;  ///< as it was given
  Question question;
  double speed = 1;  ///< of a place, over the profile's
};

/// Changes a question as `link=100Gbit,places=8,speed=2` says. The names: `link`, `latency` (of
/// it), `within`, `places`, `nodes`, `batch`, `memory` (`16G`), `price`, `speed`. `places` and
/// `nodes` take the place of all numbers that the question has. Throws InvalidArgument that lists
/// the names.
Scenario changed(const Question& question, const std::string& text);

/// Answers the changed question.
Answer answer(const ModelProfile& profile, const Scenario& scenario);

}  // namespace lockstep::plan
