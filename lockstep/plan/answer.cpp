#include "lockstep/plan/answer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
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

std::string on_nodes(const Machine& machine) {
  std::string text = machine.nodes > 1 ? concat(" on ", machine.nodes, " nodes") : "";
  if (!machine.device.empty()) text += concat(text.empty() ? " on " : " of ", machine.device);
  return text;
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
    answer.impossible.push_back({concat(describe(choice.prediction.way), on_nodes(machine)),
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
    if (reason.empty()) {
      add_choice(machine, predict(answer.profile, machine, way, batch), answer);
    } else {
      const std::string& device = machine.device;
      answer.impossible.push_back(
          {concat(describe(way), device.empty() ? "" : " on ", device), reason});
    }
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

// What a choice takes of money, or else of machines.
double expense_of(const Choice& choice) {
  return choice.cost > 0 ? choice.cost : choice.machine.all_places();
}

// The least to set up and to go wrong first.
constexpr std::array<std::string_view, 8> kSimplestFirst{
    "serial", "ddp", "dp", "fsdp", "mp", "pp", "ddp+mp", "ddp+pp"};

auto effort_of(const Choice& choice) {
  const auto* const kind = std::ranges::find(kSimplestFirst, kind_of(choice.prediction.way));
  return std::pair(choice.machine.all_places(), kind - kSimplestFirst.begin());
}

// Of sorted choices: of those that take least where a time is given, or else of those about as fast
// as the fastest that take least, the simplest.
std::optional<std::size_t> pick_among(const std::vector<Choice>& choices, const Question& asked) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (is_allowed(choices[i], asked)) open.push_back(i);
  if (open.empty()) return std::nullopt;
  if (asked.within_hours == 0) {
    const double least = choices[open.front()].rate() * (1 - kEqualRates);
    std::erase_if(open, [&](std::size_t i) { return choices[i].rate() < least; });
  }
  const auto expense = [&](std::size_t i) { return expense_of(choices[i]); };
  const double most = expense(*std::ranges::min_element(open, {}, expense)) * (1 + kEqualRates);
  std::erase_if(open, [&](std::size_t i) { return expense(i) > most; });
  return *std::ranges::min_element(open, {}, [&](std::size_t i) { return effort_of(choices[i]); });
}

void put_in_order(Answer& answer) {
  std::ranges::stable_sort(answer.choices, is_better);
  answer.pick = pick_among(answer.choices, answer.question);
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

std::string hours_text(double hours) {
  if (hours < 2) return concat(std::lround(60 * hours), " minutes");
  if (hours < 100) return concat(std::round(hours * 10) / 10, " hours");
  return concat(std::llround(hours), " hours");
}

std::string percent(double share) { return concat(std::lround(100 * share), " %"); }

std::string rate_text(double rate) {
  if (rate >= 100) return concat(std::lround(rate), " samples/s");
  const double scale = rate >= 10 ? 10 : 100;
  return concat(std::round(rate * scale) / scale, " samples/s");
}

std::string times(double factor) {
  const double scale = factor >= 10 ? 1 : 100;
  return concat(std::round(factor * scale) / scale, " times");
}

// What a step loses most by, beside computing.
std::string about_limit(const Prediction& prediction) {
  const double waits = prediction.idle / prediction.seconds;
  const double sends = prediction.of(Use::kCommunication) / prediction.seconds;
  const double steps = prediction.of(Use::kOptimizer) / prediction.seconds;
  const double input = prediction.of(Use::kInput) / prediction.seconds;
  const double most = std::max({waits, sends, steps, input});
  if (most < 0.05) return "Its places compute nearly all the time";
  if (most == waits) {
    return concat(prediction.way.stages > 1 ? "Its busiest place waits for other stages"
                                            : "A place waits for gradients",
        " during ", percent(waits), " of a step");
  }
  if (most == sends) return concat("It exchanges gradients during ", percent(sends), " of a step");
  if (most == steps) return concat("The optimizer takes ", percent(steps), " of a step");
  return concat("It waits for input during ", percent(input), " of a step");
}

std::string money_text(double cost, const Question& question) {
  const std::string amount =
      cost < 100 ? concat(std::round(cost * 100) / 100) : std::to_string(std::llround(cost));
  return concat(amount, question.currency.empty() ? "" : " ", question.currency);
}

bool are_equal(const Choice& one, const Choice& other) {
  return std::abs(one.rate() / other.rate() - 1) <= kEqualRates &&
         std::abs(expense_of(one) / expense_of(other) - 1) <= kEqualRates;
}

std::string about_next(const Answer& answer) {
  const Choice& picked = answer.choices[*answer.pick];
  for (std::size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& other = answer.choices[i];
    if (i == *answer.pick || !is_allowed(other, answer.question)) continue;
    const double ratio = picked.rate() / other.rate();
    if (are_equal(picked, other))
      return concat("; ", describe(other.prediction.way), on_nodes(other.machine),
          " is about as fast, but less simple");
    if (ratio < 1)
      return concat("; ", describe(other.prediction.way), on_nodes(other.machine), " is ",
          ratio > 0.5 ? concat("faster by ", percent(1 / ratio - 1))
                      : concat(times(1 / ratio), " as fast"),
          other.cost > 0 ? concat(" and costs ", money_text(other.cost, answer.question))
                         : concat(" but takes ", other.machine.all_places(), " places"));
    return concat("; the next, ", describe(other.prediction.way), on_nodes(other.machine), " with ",
        other.machine.all_places(), other.machine.all_places() == 1 ? " place" : " places",
        ", reaches ", percent(1 / ratio), " of its rate");
  }
  return "";
}

// What the pick is the best of.
std::string about_reason(const Question& asked) {
  if (asked.within_hours == 0 && asked.budget == 0) return "";
  const char* const least =
      asked.machine.all_price() > 0 ? "the cheapest" : "the one with the fewest places";
  std::string text = asked.within_hours > 0
                         ? concat(", ", least, " that ends within ", hours_text(asked.within_hours))
                         : ", the fastest";
  if (asked.budget > 0) text += concat(" for at most ", money_text(asked.budget, asked));
  return text;
}

std::string about_training(const Choice& choice, const Question& question) {
  if (choice.hours == 0) return "";
  const std::string cost =
      choice.cost > 0 ? concat(" and ", money_text(choice.cost, question)) : "";
  return concat(hours_text(choice.hours), cost, " for the training, ");
}

// Of those that fit; the first fits.
const Choice& cheapest_of(const std::vector<Choice>& choices) {
  const Choice* cheapest = &choices.front();
  for (const Choice& each : choices)
    if (each.fits() && each.cost < cheapest->cost) cheapest = &each;
  return *cheapest;
}

// The cheapest, unless it is the pick itself or costs about as much.
std::string about_money(const Answer& answer) {
  const Choice& picked = answer.choices[*answer.pick];
  const Choice& cheapest = cheapest_of(answer.choices);
  if (cheapest.cost >= picked.cost * (1 - kEqualRates)) return "";
  return concat(" The cheapest of all, ", describe(cheapest.prediction.way),
      on_nodes(cheapest.machine), ", costs ", percent(cheapest.cost / picked.cost),
      " as much and takes ", times(cheapest.hours / picked.hours), " as long.");
}

std::string about_failures(const Choice& choice) {
  const Goodput& goodput = choice.goodput;
  if (goodput.share >= 0.995 || goodput.interval == 0) return "";
  return concat(" Snapshots every ", std::lround(goodput.interval), " s and failures leave ",
      percent(goodput.share), " of the time.");
}

// Some fit, but none ends in time or for the money.
std::string about_limits(const Answer& answer) {
  const Question& asked = answer.question;
  const Choice& fastest = answer.choices.front();
  const Choice& cheapest = cheapest_of(answer.choices);
  std::vector<std::string> limits;
  if (asked.within_hours > 0) limits.push_back("ends within " + hours_text(asked.within_hours));
  if (asked.budget > 0) limits.push_back("costs at most " + money_text(asked.budget, asked));
  std::string text = concat("Nothing ", joined(limits, " and "), ": the fastest, ",
      describe(fastest.prediction.way), on_nodes(fastest.machine), ", takes ",
      hours_text(fastest.hours));
  if (cheapest.cost > 0)
    text += concat(", the cheapest, ", describe(cheapest.prediction.way),
        on_nodes(cheapest.machine), ", costs ", money_text(cheapest.cost, asked));
  return text + ".";
}

std::string about_nothing(const Answer& answer) {
  if (answer.choices.empty())
    return concat("Nothing is possible: ",
        answer.impossible.empty() ? "no way was asked for" : answer.impossible.front().reason, ".");
  if (answer.choices.front().fits()) return about_limits(answer);
  const auto least =
      std::ranges::min_element(answer.choices, [](const Choice& one, const Choice& other) {
        return one.lacking_bytes < other.lacking_bytes;
      });
  return concat("Nothing fits: ", describe(least->prediction.way), on_nodes(least->machine),
      " comes nearest and lacks ", std::ceil(least->lacking_bytes / 1e6),
      " MB a place. More stages, a smaller batch, or --checkpoint of lockstep train make it "
      "smaller.");
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

bool is_allowed(const Choice& choice, const Question& question) {
  return choice.fits() && (question.within_hours == 0 || choice.hours <= question.within_hours) &&
         (question.budget == 0 || choice.cost <= question.budget);
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

std::vector<std::size_t> pareto_front(const Answer& answer) {
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& own = answer.choices[i];
    if (!own.fits()) continue;
    // Choices are sorted by their rates: all that come before are faster.
    const bool is_beaten = std::ranges::any_of(front,
        [&](std::size_t other) { return expense_of(answer.choices[other]) <= expense_of(own); });
    if (!is_beaten) front.push_back(i);
  }
  std::reverse(front.begin(), front.end());
  return front;
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

std::string verdict_of(const Answer& answer, std::optional<double> measured) {
  if (!answer.pick) return about_nothing(answer);
  const Choice& choice = answer.choices[*answer.pick];
  const Prediction& prediction = choice.prediction;
  const int places = choice.machine.all_places();
  std::string text = concat("Take ", describe(prediction.way), on_nodes(choice.machine),
      about_reason(answer.question), ": ", about_training(choice, answer.question),
      measured
          ? concat(rate_text(prediction.batch / *measured), " as trained here; predicted were ")
          : "",
      rate_text(prediction.samples_per_second()));
  if (places > 1) {
    text += concat(", ", times(choice.speed_up), " those of one place (",
        percent(choice.efficiency), " efficiency)");
  }
  // What was trained is not compared with what was predicted.
  return concat(text, ". ", about_limit(prediction), measured ? "" : about_next(answer), ".",
      measured ? "" : about_money(answer), about_failures(choice));
}

}  // namespace lockstep::plan
