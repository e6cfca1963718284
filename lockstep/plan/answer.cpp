#include "lockstep/plan/answer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::plan {
namespace {

double share_of(double interval, double snapshot, double recovery, double mean) {
  const double spent = mean * std::exp(recovery / mean) * std::expm1((interval + snapshot) / mean);
  return interval / spent;
}

// The share has one maximum over the interval: sections of the logarithm find it.
double best_interval(const Failures& failures, double mean) {
  double least = std::log(1e-3), most = std::log(100 * mean + 1);
  for (int round = 0; round < 200; ++round) {
    const double third = (most - least) / 3;
    const auto share = [&](double logarithm) {
      return share_of(std::exp(logarithm), failures.snapshot, failures.recovery, mean);
    };
    if (share(least + third) < share(most - third)) {
      least += third;
    } else {
      most -= third;
    }
  }
  return std::exp((least + most) / 2);
}

constexpr double kHour = 3600;
constexpr double kMostBatch = 1e9;
// A training that keeps less of its time than this comes to no end.
constexpr double kLeastGoodput = 0.01;

double batch_of(const Question& question, int places) {
  return question.is_batch_of_place ? question.batch * places : question.batch;
}

Machine machine_of(const Question& question, int nodes, int places) {
  Machine machine = question.machine;
  machine.nodes = nodes;
  machine.places = places;
  return machine;
}

void add_choice(const Machine& machine, Prediction prediction, Answer& answer) {
  Choice choice{.machine = machine, .prediction = std::move(prediction)};
  choice.goodput = goodput_of(answer.question.failures, machine.nodes);
  if (!(choice.goodput.share >= kLeastGoodput)) {
    answer.impossible.push_back({describe(choice),
        concat("failures come every ", answer.question.failures.between / machine.nodes,
            " s on average, and snapshots and recovery leave no time between them")});
    return;
  }
  choice.hours = answer.question.samples / choice.rate() / kHour;
  choice.cost = choice.hours * machine.all_price();
  if (machine.memory_bytes > 0)
    choice.lacking_bytes = std::max(0.0, choice.prediction.memory_bytes - machine.memory_bytes);
  answer.choices.push_back(std::move(choice));
}

void add_choices(const Machine& machine, Answer& answer) {
  const double batch = batch_of(answer.question, machine.all_places());
  for (const Way& way : ways_on(machine, answer.question.ways)) {
    if (way.places() != machine.all_places()) continue;
    const std::string reason = why_not(way, answer.profile, batch, machine);
    if (reason.empty())
      add_choice(machine, predict(answer.profile, machine, way, batch), answer);
    else
      answer.impossible.push_back({describe(way), reason});
  }
}

bool is_better(const Choice& one, const Choice& other) {
  return one.fits() != other.fits() ? one.fits() : one.rate() > other.rate();
}

// One place is asked for in any case: speed-ups are over it.
void compare_with_one_place(Answer& answer) {
  const Question& question = answer.question;
  const double batch = batch_of(question, 1);
  const double alone =
      predict(answer.profile, machine_of(question, 1, 1), {}, batch).samples_per_second();
  for (Choice& choice : answer.choices) {
    choice.speed_up = choice.prediction.samples_per_second() / alone;
    choice.efficiency = choice.speed_up / choice.machine.all_places();
  }
}

// The quantile of the normal distribution.
constexpr double kOneInFour = 0.6745;
// Of the steps of a few short trainings; as ways were trained one after the other, each has its
// own.
constexpr double kTrainedSpread = 0.03;

// The standard deviation of the logarithm of one choice's rate over the other's. Another device's
// profile is off by something else; ways of one kind are off alike, unless only one of them goes
// over the links between nodes. What is unsure of batches that were not measured counts where only
// one has them, and twice where one has larger and the other smaller ones.
double spread_between(const Choice& one, const Choice& other) {
  const Prediction &first = one.prediction, &second = other.prediction;
  if (one.machine.device != other.machine.device) return std::hypot(first.spread, second.spread);
  const bool is_alike = kind_of(first.way) == kind_of(second.way) &&
                        (one.machine.nodes > 1) == (other.machine.nodes > 1) && !one.is_trained();
  const double own = std::hypot(first.own_spread, second.own_spread) / (is_alike ? 2 : 1);
  return std::hypot(own, first.outside_spread - second.outside_spread);
}

// With so many times the hours and the money.
bool keeps_to(const Choice& choice, const Question& question, double times) {
  return choice.fits() &&
         (question.within_hours == 0 || times * choice.hours <= question.within_hours) &&
         (question.budget == 0 || times * choice.cost <= question.budget);
}

bool is_same_machine(const Machine& one, const Machine& other) {
  return one.device == other.device && one.nodes == other.nodes && one.places == other.places;
}

// What a choice takes of money, or else of machines.
double expense_of(const Choice& choice) {
  return choice.cost > 0 ? choice.cost : choice.machine.all_places();
}

struct KindEffort {
  std::string_view kind;
  int effort;
};
// In the order in which one would try them.
constexpr std::array kEfforts{KindEffort{"serial", 0}, KindEffort{"ddp", 1}, KindEffort{"dp", 1},
    KindEffort{"fsdp", 2}, KindEffort{"mp", 3}, KindEffort{"pp", 3}, KindEffort{"ddp+mp", 4},
    KindEffort{"ddp+pp", 4}};

std::size_t place_in_order(const Choice& choice) {
  const auto* const kind =
      std::ranges::find(kEfforts, kind_of(choice.prediction.way), &KindEffort::kind);
  return static_cast<std::size_t>(kind - kEfforts.begin());
}

// Those that were trained come before those that were not; of both, those that surely keep to time
// and money before those that may.
std::vector<std::size_t> open_choices(const Answer& answer) {
  std::vector<std::size_t> open;
  for (const bool is_trained : {true, false}) {
    for (const auto keeps : {is_sure, is_allowed}) {
      for (std::size_t i = 0; i < answer.choices.size(); ++i) {
        const Choice& choice = answer.choices[i];
        if (choice.is_trained() == is_trained && keeps(choice, answer.question)) open.push_back(i);
      }
      if (!open.empty()) return open;
    }
  }
  return open;
}

// Keeps those of which this is least, or hardly more.
template <typename Value>
void keep_least(std::vector<std::size_t>& numbers, double times, const Value& value) {
  const auto least = value(*std::ranges::min_element(numbers, {}, value));
  std::erase_if(numbers, [&](std::size_t i) { return value(i) > least * times; });
}

// Of those that cost least; of equally simple ones the fastest.
std::size_t simplest_of(const std::vector<Choice>& choices, std::vector<std::size_t> numbers) {
  constexpr double kAsFast = 1.01;
  keep_least(numbers, 1 + kEqualExpenses, [&](std::size_t i) { return expense_of(choices[i]); });
  keep_least(numbers, 1, [&](std::size_t i) { return choices[i].machine.all_places(); });
  keep_least(numbers, 1, [&](std::size_t i) { return effort_of(choices[i]); });
  keep_least(numbers, kAsFast, [&](std::size_t i) { return 1 / choices[i].rate(); });
  return *std::ranges::min_element(
      numbers, {}, [&](std::size_t i) { return place_in_order(choices[i]); });
}

// The simplest of those that cannot be told apart from the fastest; one that was only predicted is
// not compared with those that were trained.
std::size_t best_of(const std::vector<Choice>& choices, std::vector<std::size_t> numbers) {
  const auto is_first = [&](std::size_t one, std::size_t other) {
    const bool is_trained = choices[one].is_trained();
    const bool are_alike = choices[one].fits() == choices[other].fits();
    if (are_alike && is_trained != choices[other].is_trained()) return is_trained;
    return is_better(choices[one], choices[other]);
  };
  const Choice& first = choices[*std::ranges::min_element(numbers, is_first)];
  std::erase_if(numbers, [&](std::size_t i) {
    return choices[i].fits() != first.fits() || choices[i].is_trained() != first.is_trained() ||
           !cannot_be_told_apart(choices[i], first);
  });
  return simplest_of(choices, std::move(numbers));
}

// With a time to end in the cheapest machine is the best, and only its ways are compared.
void pick_best(Answer& answer) {
  const std::vector<Choice>& choices = answer.choices;
  std::vector<std::size_t> open = open_choices(answer);
  answer.pick.reset();
  answer.equals.clear();
  if (open.empty()) return;
  if (answer.question.within_hours > 0) {
    const Machine& cheapest = choices[simplest_of(choices, open)].machine;
    std::erase_if(
        open, [&](std::size_t i) { return !is_same_machine(choices[i].machine, cheapest); });
  }
  const auto rate = [&](std::size_t i) { return choices[i].rate(); };
  const std::size_t fastest = *std::ranges::max_element(open, {}, rate);
  std::ranges::copy_if(open, std::back_inserter(answer.equals),
      [&](std::size_t i) { return cannot_be_told_apart(choices[i], choices[fastest]); });
  answer.pick = simplest_of(choices, answer.equals);
}

// What several machines refuse for one reason is there once.
std::vector<Impossible> each_once(const std::vector<Impossible>& all) {
  std::vector<Impossible> once;
  std::ranges::copy_if(all, std::back_inserter(once),
      [&](const Impossible& each) { return std::ranges::find(once, each) == once.end(); });
  return once;
}

void put_in_order(Answer& answer) {
  std::ranges::stable_sort(answer.choices, is_better);
  answer.impossible = each_once(answer.impossible);
  pick_best(answer);
}

struct Change {
  std::string_view name;
  void (*apply)(Scenario& scenario, const std::string& text);
};

double amount(const std::string& text, const char* what, double least) {
  const auto number = parse_number<double>(text);
  check(number && *number >= least && std::isfinite(*number), "plan: --what-if: ", what,
      " must be a number of at least ", least, ": ", printable(text));
  return *number;
}

int whole(const std::string& text, const char* what) {
  const auto number = parse_number<int>(text);
  check(number && *number >= 1, "plan: --what-if: ", what,
      " must be a whole number from 1: ", printable(text));
  return *number;
}

// At another rate, with the latency that is known.
Link faster(const Link& link, const std::string& text) {
  Link changed = parse_link(text);
  changed.latency = link.latency;
  changed.core_share = link.core_share;
  return changed;
}

// A core that moves the bytes does as much for each as before: another rate keeps it busy for
// another share of its time, and is no higher than it can.
Link faster_wire(const Link& link, const std::string& text) {
  Link changed = faster(link, text);
  if (link.core_share == 0 || link.bytes_per_second == 0) return changed;
  const double most = link.bytes_per_second / link.core_share;
  changed.bytes_per_second = std::min(changed.bytes_per_second, most);
  changed.core_share = changed.bytes_per_second / most;
  return changed;
}

constexpr std::array kChanges{Change{"link",
                                  [](Scenario& to, const std::string& text) {
                                    to.question.machine.between =
                                        faster_wire(to.question.machine.between, text);
                                  }},
    Change{"latency",
        [](Scenario& to, const std::string& text) {
          Link& link = to.question.machine.between;
          link = with_latency(link, parse_link("1Gbit," + text).latency);
        }},
    Change{"within",
        [](Scenario& to, const std::string& text) {
          to.question.machine.within = faster(to.question.machine.within, text);
        }},
    Change{
        "places", [](Scenario& to,
                      const std::string& text) { to.question.places = {whole(text, "places")}; }},
    Change{"nodes",
        [](Scenario& to, const std::string& text) { to.question.nodes = {whole(text, "nodes")}; }},
    Change{"batch",
        [](Scenario& to, const std::string& text) { to.question.batch = whole(text, "batch"); }},
    Change{"memory",
        [](Scenario& to, const std::string& text) {
          to.question.machine.memory_bytes = static_cast<double>(parse_bytes(text));
          check(to.question.machine.memory_bytes > 0, "plan: --what-if: memory must be above 0");
        }},
    Change{"price",
        [](Scenario& to, const std::string& text) {
          to.question.machine.price = amount(text, "price", 0);
          to.question.machine.place_price = 0;
        }},
    Change{"speed",
        [](Scenario& to, const std::string& text) { to.speed = amount(text, "speed", 1e-6); }}};

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const Change& change : kChanges) names.emplace_back(change.name);
  return names;
}

void apply(const std::string& part, Scenario& scenario) {
  const auto equals = part.find('=');
  const std::string name = part.substr(0, equals);
  for (const Change& change : kChanges) {
    if (change.name != name || equals == std::string::npos) continue;
    change.apply(scenario, part.substr(equals + 1));
    return;
  }
  throw InvalidArgument(concat("plan: --what-if takes NAME=VALUE, with a name of ",
      joined(known_names(), ", "), ": ", printable(part), did_you_mean(name, known_names())));
}

}  // namespace

Goodput goodput_of(const Failures& failures, int nodes) {
  for (const double seconds :
      {failures.between, failures.snapshot, failures.interval, failures.recovery}) {
    check(seconds >= 0 && std::isfinite(seconds),
        "plan: failures, snapshots and recovery take 0 "
        "or more seconds: ",
        seconds);
  }
  const double interval = failures.interval;
  if (failures.between == 0) {
    return {.share = interval > 0 ? interval / (interval + failures.snapshot) : 1,
        .interval = interval};
  }
  check(interval > 0 || failures.snapshot > 0,
      "plan: the best interval between snapshots depends on what one takes: give "
      "--snapshot-seconds, or --snapshot-interval");
  const double mean = failures.between / std::max(1, nodes);
  const double taken = interval > 0 ? interval : best_interval(failures, mean);
  return {.share = share_of(taken, failures.snapshot, failures.recovery, mean), .interval = taken};
}

std::string describe(const Choice& choice) {
  const Machine& machine = choice.machine;
  std::string text = describe(choice.prediction.way);
  if (machine.nodes > 1) text += concat(" on ", machine.nodes, " nodes");
  if (!machine.device.empty()) text += concat(machine.nodes > 1 ? " of " : " on ", machine.device);
  return text;
}

int effort_of(const Choice& choice) { return kEfforts.at(place_in_order(choice)).effort; }

bool is_allowed(const Choice& choice, const Question& question) {
  return keeps_to(choice, question, 1);
}

bool is_sure(const Choice& choice, const Question& question) {
  return keeps_to(choice, question, choice.most_times());
}

bool cannot_be_told_apart(const Choice& one, const Choice& other) {
  return std::abs(std::log(one.rate() / other.rate())) <= kOneInFour * spread_between(one, other);
}

void check_question(const Question& question) {
  check(question.batch >= 1 && question.batch <= kMostBatch &&
            question.batch == std::floor(question.batch),
      "plan: a batch has a whole number of samples from 1 to ", kMostBatch, ": ", question.batch);
  check(question.samples >= 0 && std::isfinite(question.samples), "plan: a training has no ",
      question.samples, " samples");
  const bool has_price = question.machine.price > 0 || question.machine.place_price > 0;
  check(!has_price || question.samples > 0,
      "plan: a price makes a cost of the whole training: say its --samples");
  check(question.within_hours == 0 || question.samples > 0,
      "plan: --within-hours is about the whole training: say its --samples");
  check(question.budget == 0 || has_price, "plan: a --budget needs a --price");
  int most = 1;
  for (const int nodes : question.nodes) {
    for (const int places : question.places) {
      const Machine machine = machine_of(question, nodes, places);
      check_machine(machine);
      most = std::max(most, machine.all_places());
    }
  }
  const double samples = batch_of(question, most);
  for (const int count : question.ways.micro_batches)
    check(count <= samples, "plan: --chunks ", count, " is more than the ", samples,
        " samples of a batch, and each micro-batch needs one");
  check(question.ways.settings.accumulated <= samples, "plan: --grad-accum-steps ",
      question.ways.settings.accumulated, " is more than the ", samples,
      " samples of a step, and each pass needs one");
}

Answer answer(const ModelProfile& profile, const Question& question) {
  check_question(question);
  Answer answer{
      .profile = profile, .question = question, .choices = {}, .impossible = {}, .pick = {}};
  for (const int nodes : question.nodes) {
    for (const int places : question.places)
      add_choices(machine_of(question, nodes, places), answer);
  }
  compare_with_one_place(answer);
  put_in_order(answer);
  return answer;
}

Answer merged(std::vector<Answer> answers) {
  check(!answers.empty(), "plan: no answers to merge");
  Answer all = std::move(answers.front());
  for (std::size_t i = 1; i < answers.size(); ++i) {
    std::ranges::move(answers[i].choices, std::back_inserter(all.choices));
    std::ranges::move(answers[i].impossible, std::back_inserter(all.impossible));
  }
  put_in_order(all);
  return all;
}

// Over one place that was trained, too.
static void compare_trained(std::vector<Choice>& choices) {
  const auto alone = std::ranges::find_if(choices,
      [](const Choice& each) { return each.is_trained() && each.machine.all_places() == 1; });
  if (alone == choices.end()) return;
  const double rate = alone->prediction.samples_per_second();
  for (Choice& choice : choices) {
    if (!choice.is_trained()) continue;
    choice.speed_up = choice.prediction.samples_per_second() / rate;
    choice.efficiency = choice.speed_up / choice.machine.all_places();
  }
}

Answer with_trained(Answer answer, const std::vector<TrainedStep>& steps) {
  for (const auto& [number, seconds] : steps) {
    Choice& choice = answer.choices.at(number);
    Prediction& prediction = choice.prediction;
    const double times = seconds / prediction.seconds;
    choice.predicted_seconds = prediction.seconds;
    prediction.seconds = seconds;
    prediction.spread = prediction.own_spread = kTrainedSpread;
    prediction.outside_spread = 0;
    for (double& use : prediction.uses) use *= times;
    prediction.idle *= times;
    prediction.communication *= times;
    choice.speed_up /= times;
    choice.efficiency /= times;
    choice.hours *= times;
    choice.cost *= times;
  }
  compare_trained(answer.choices);
  pick_best(answer);
  return answer;
}

std::vector<std::size_t> pareto_front(const Answer& answer) {
  const std::vector<Choice>& choices = answer.choices;
  std::vector<std::size_t> fastest_first;
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (choices[i].fits()) fastest_first.push_back(i);
  std::ranges::stable_sort(
      fastest_first, std::greater<>(), [&](std::size_t i) { return choices[i].rate(); });
  std::vector<std::size_t> front;
  for (const std::size_t i : fastest_first) {
    const bool is_beaten = std::ranges::any_of(front,
        [&](std::size_t other) { return expense_of(choices[other]) <= expense_of(choices[i]); });
    if (!is_beaten) front.push_back(i);
  }
  std::reverse(front.begin(), front.end());
  return front;
}

std::vector<std::size_t> distinct_equals(const Answer& answer) {
  std::map<std::string, std::vector<std::size_t>> by_device;
  for (const std::size_t i : answer.equals)
    by_device[answer.choices[i].machine.device].push_back(i);
  if (by_device.size() < 2) return answer.equals;
  std::vector<std::size_t> distinct;
  for (const auto& [device, numbers] : by_device) {
    const bool has_pick = std::ranges::find(numbers, *answer.pick) != numbers.end();
    distinct.push_back(has_pick ? *answer.pick : simplest_of(answer.choices, numbers));
  }
  std::ranges::sort(distinct);
  return distinct;
}

std::vector<std::size_t> best_on_each_machine(const Answer& answer) {
  const std::vector<Choice>& choices = answer.choices;
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const auto is_on_it = [&](std::size_t other) {
      return is_same_machine(choices[other].machine, choices[i].machine);
    };
    if (std::ranges::any_of(best, is_on_it)) continue;
    std::vector<std::size_t> numbers;
    for (std::size_t other = i; other < choices.size(); ++other)
      if (is_on_it(other)) numbers.push_back(other);
    best.push_back(best_of(choices, std::move(numbers)));
  }
  std::ranges::sort(best);
  return best;
}

Scenario changed(const Question& question, const std::string& text) {
  Scenario scenario{.text = text, .question = question};
  for (const std::string& part : split(text, ',')) apply(part, scenario);
  check_question(scenario.question);
  return scenario;
}

Answer answer(const ModelProfile& profile, const Scenario& scenario) {
  if (scenario.speed == 1) return answer(profile, scenario.question);
  return answer(profile.scaled_to(scenario.question.batch,
                    profile.step_seconds(scenario.question.batch) / scenario.speed),
      scenario.question);
}

}  // namespace lockstep::plan
