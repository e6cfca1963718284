#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/goodput.h"
#include "lockstep/plan/machine.h"
#include "lockstep/plan/prediction.h"
#include "lockstep/plan/way.h"

namespace lockstep::plan {

/// The training and the machines that a plan is asked about.
struct Question {
  std::vector<int> nodes = {1};
  std::vector<int> places = {1};  ///< of a node
  Machine machine = {};  ///< links, memory and price; its numbers of nodes and places do not count
  double batch = 0;      ///< of all places together, or of each
  bool is_batch_of_place = false;
  WayChoice ways = {};
  double samples = 0;  ///< of the whole training; 0: only steps are asked for
  Failures failures = {};
};

/// One way on one number of machines.
struct Choice {
  Machine machine;
  Prediction prediction;
  double speed_up = 1;       ///< over one place, in samples a second
  double efficiency = 1;     ///< of that, a place
  Goodput goodput = {};      ///< what failures and snapshots leave of its time
  double hours = 0;          ///< of the whole training, with them; 0 where it was not asked for
  double cost = 0;           ///< of it; 0 without a price
  double lacking_bytes = 0;  ///< that a place would need besides; 0: it fits

  bool fits() const { return lacking_bytes == 0; }
  /// Samples a second that failures and snapshots leave.
  double rate() const { return prediction.samples_per_second() * goodput.share; }
};

/// A way that cannot be taken, and why.
struct Impossible {
  std::string way;
  std::string reason;
};

/// All choices, the fastest first, those that fit before those that do not.
struct Answer {
  ModelProfile profile;
  Question question;
  std::vector<Choice> choices;
  std::vector<Impossible> impossible;
  std::optional<std::size_t> pick;  ///< among the choices; none where nothing fits
};

/// Choices whose rates differ by less are equal: then the one with the fewest places is picked.
inline constexpr double kEqualRates = 0.03;

/// Throws InvalidArgument for a question that has no answer: no samples, more places than anybody
/// has, more micro-batches or passes than samples, a price of a training without an end.
void check_question(const Question& question);

/// Predicts every way on every number of nodes and places. Each way uses all places of its machine.
Answer answer(const ModelProfile& profile, const Question& question);

/// Returns the choices that no other beats in both time and money (samples a second and machines
/// where there is no price), the cheapest first.
std::vector<std::size_t> pareto_front(const Answer& answer);

/// Says which choice to take and why, in two or three sentences; with what its step took where it
/// was trained, in seconds.
std::string verdict_of(const Answer& answer, std::optional<double> measured = {});

}  // namespace lockstep::plan
