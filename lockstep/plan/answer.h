#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/machine.h"
#include "lockstep/plan/prediction.h"
#include "lockstep/plan/way.h"

namespace lockstep::plan {

/// The failures of nodes, and what a training does against them. All in seconds.
struct Failures {
  double between = 0;   ///< failures of one node, on average; 0: there are none
  double snapshot = 0;  ///< during which a snapshot stops the training
  double interval = 0;  ///< of training between snapshots; 0: the best one is taken
  double recovery = 0;  ///< from a failure to the first step after it
};

/// The part of its time that a training keeps.
struct Goodput {
  double share = 1;     ///< of the time; the rest is lost to snapshots, failures and lost steps
  double interval = 0;  ///< between snapshots; 0: no snapshot is needed
};

/// Returns the goodput of N nodes, any of which ends the training when it fails.
///
/// Failures come at random with a constant rate (a Poisson process), also during a snapshot and a
/// recovery; each throws the training back to its last snapshot. The expected time of an interval
/// T with a snapshot of s seconds is M e^(R/M) (e^((T+s)/M) - 1), M being the mean time between
/// failures of any node and R the recovery (J. T. Daly, "A higher order estimate of the optimum
/// checkpoint interval for restart dumps", 2006). Throws InvalidArgument for negative seconds.
Goodput goodput_of(const Failures& failures, int nodes);

/// The training and the machines that a plan is asked about.
struct Question {
  std::vector<int> nodes = {1};
  std::vector<int> places = {1};  ///< of a node
  Machine machine = {};  ///< links, memory and price; its numbers of nodes and places do not count
  double batch = 0;      ///< of all places together, or of each
  bool is_batch_of_place = false;
  WayChoice ways = {};
  double samples = 0;         ///< of the whole training; 0: only steps are asked for
  double within_hours = 0;    ///< in which the training has to end; 0: no matter
  double budget = 0;          ///< that it may cost; 0: no matter
  std::string currency = {};  ///< of all prices; may be empty
  Failures failures = {};
};

/// One way on one number of machines.
struct Choice {
  Machine machine;
  Prediction prediction;
  double speed_up = 1;           ///< over one place, in samples a second
  double efficiency = 1;         ///< of that, a place
  Goodput goodput = {};          ///< what failures and snapshots leave of its time
  double hours = 0;              ///< of the whole training, with them; 0 where it was not asked for
  double cost = 0;               ///< of it; 0 without a price
  double lacking_bytes = 0;      ///< that a place would need besides; 0: it fits
  double predicted_seconds = 0;  ///< of a step, where it was trained here; 0: it was not

  bool fits() const { return lacking_bytes == 0; }
  bool is_trained() const { return predicted_seconds > 0; }
  /// How many times the hours and the cost one training in twenty takes less than, or more.
  double least_times() const { return prediction.least_seconds() / prediction.seconds; }
  double most_times() const { return prediction.most_seconds() / prediction.seconds; }
  /// Samples a second that failures and snapshots leave.
  double rate() const { return prediction.samples_per_second() * goodput.share; }
};

/// Describes a choice for people: `ddp x 16 on 2 nodes of A100`.
std::string describe(const Choice& choice);

/// A way that cannot be taken, and why; whatever the device.
struct Impossible {
  std::string way;
  std::string reason;

  bool operator==(const Impossible&) const = default;
};

/// All choices, the fastest first, those that fit before those that do not.
struct Answer {
  ModelProfile profile;
  Question question;
  std::vector<Choice> choices;
  std::vector<Impossible> impossible;
  std::optional<std::size_t> pick;  ///< among the choices; none where nothing fits
  /// Of the choices, the pick and those that cannot be told apart from it.
  std::vector<std::size_t> equals = {};
};

/// Expenses that differ by less are equal.
inline constexpr double kEqualExpenses = 0.03;

/// Returns how much there is to set up and to go wrong: least with one place, then with replicas of
/// the model, of its parts, stages, and replicas of stages.
int effort_of(const Choice& choice);

/// Returns whether a choice fits, and ends in the time and for the money that were asked for; and
/// whether it does so in 19 of 20 trainings.
bool is_allowed(const Choice& choice, const Question& question);
bool is_sure(const Choice& choice, const Question& question);

/// Returns whether the slower of two choices may be the faster one: with a chance of one in four or
/// more. What all ways of a device have in common does not count: that their times are unsure says
/// nothing about which is the longer one.
bool cannot_be_told_apart(const Choice& one, const Choice& other);

/// Throws InvalidArgument for a question that has no answer: no samples, more places than anybody
/// has, more micro-batches or passes than samples, a price without the samples of the training.
void check_question(const Question& question);

/// Predicts every way on every number of nodes and places. Each way uses all places of its machine.
///
/// Of choices that are allowed, or surely are if there are such, it picks the fastest, where there
/// is a time to end in only of those on the cheapest machine. Of those that cannot be told apart
/// from it, it takes those that cost least, or have the fewest places without a price, of these the
/// simplest, and of these the fastest.
Answer answer(const ModelProfile& profile, const Question& question);

/// The step of a choice that was trained here.
struct TrainedStep {
  std::size_t choice = 0;  ///< of the answer
  double seconds = 0;
};

/// Returns the answer with what was measured in the place of what was predicted; its choices keep
/// their order, and it picks among those that were trained, if there are any.
Answer with_trained(Answer answer, const std::vector<TrainedStep>& steps);

/// Puts the answers about several devices into one; its profile and question are the first's.
Answer merged(std::vector<Answer> answers);

/// Returns the choices that no other beats in both time and money (samples a second and machines
/// where there is no price), the cheapest first.
std::vector<std::size_t> pareto_front(const Answer& answer);

/// Returns what cannot be told apart from the pick, and the pick; where it is of several devices,
/// of each the simplest alone.
std::vector<std::size_t> distinct_equals(const Answer& answer);

/// Returns for each machine the simplest of the choices that cannot be told apart from its fastest,
/// in the order of the answer; where some were trained, only of those.
std::vector<std::size_t> best_on_each_machine(const Answer& answer);

/// The unit in which people say how long a training takes.
struct UnitOfTime {
  double an_hour;      ///< how many of it
  const char* name;    ///< in the plural: seconds, minutes or hours
  const char* symbol;  ///< s, min or h
};

UnitOfTime unit_of_time(double hours);

/// Says which choice to take in one sentence; then why, what cannot be told apart from it, and how
/// others compare.
std::string verdict_of(const Answer& answer);

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
