// What an answer says in sentences.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/plan/answer.h"

namespace lockstep::plan {
namespace {

// With three digits; less than a tenth, too, or little would be nothing.
std::string short_number(double number) {
  if (number >= 1000) {
    const double scale = std::pow(10, std::floor(std::log10(number)) - 2);
    return concat(std::llround(std::round(number / scale) * scale));
  }
  if (number >= 100) return concat(std::llround(number));
  const bool is_small = number > 0 && number < 0.1;
  const double scale =
      is_small ? std::pow(10, 2 - std::floor(std::log10(number))) : (number >= 10 ? 10 : 100);
  return concat(std::round(number * scale) / scale);
}

// What nine of ten trainings are expected to take, in brackets.
std::string range_around(double number, const Choice& choice) {
  return concat(" (", short_number(number * choice.least_times()), " to ",
      short_number(number * choice.most_times()), ")");
}

std::string hours_text(double hours) {
  const UnitOfTime unit = unit_of_time(hours);
  return concat(short_number(hours * unit.an_hour), " ", unit.name);
}

std::string money_text(double cost, const Question& question) {
  const std::string amount =
      cost < 100 ? concat(std::round(cost * 100) / 100) : concat(std::llround(cost));
  return concat(amount, question.currency.empty() ? "" : " ", question.currency);
}

std::string percent(double share) { return concat(std::lround(100 * share), " %"); }

std::string times(double factor) {
  return concat(factor >= 10 ? concat(std::lround(factor)) : short_number(factor), " times");
}

std::string gigabytes(double bytes) { return short_number(bytes / 1e9) + " GB"; }

std::string rate_text(double rate) { return short_number(rate) + " samples/s"; }

std::string rate_of(const Choice& choice) {
  return rate_text(choice.prediction.samples_per_second());
}

// A slower step has a lower rate.
std::string rate_with_range(const Choice& choice) {
  const double rate = choice.prediction.samples_per_second();
  if (choice.is_trained()) return rate_of(choice) + " as trained here";
  return concat(rate_of(choice), " (", short_number(rate / choice.most_times()), " to ",
      short_number(rate / choice.least_times()), ")");
}

std::string about_rate(const Choice& choice) {
  if (choice.machine.all_places() == 1) return rate_with_range(choice);
  return concat(rate_with_range(choice), ", ", times(choice.speed_up), " those of one place (",
      percent(choice.efficiency), " efficiency)");
}

// What a step loses most by, beside computing.
std::string about_limit(const Prediction& prediction) {
  const double waits = prediction.idle / prediction.seconds;
  const double sends = prediction.of(Use::kCommunication) / prediction.seconds;
  const double steps = prediction.of(Use::kOptimizer) / prediction.seconds;
  const double input = prediction.of(Use::kInput) / prediction.seconds;
  const double most = std::max({waits, sends, steps, input});
  if (most < 0.05)
    return concat(prediction.way.places() == 1 ? "The place computes" : "Its places compute",
        " nearly all the time");
  if (most == waits) {
    return concat(prediction.way.stages > 1 ? "Its busiest place waits for other stages"
                                            : "A place waits for gradients",
        " during ", percent(waits), " of a step");
  }
  if (most == sends) return concat("It exchanges gradients during ", percent(sends), " of a step");
  if (most == steps) return concat("The optimizer takes ", percent(steps), " of a step");
  return concat("It waits for input during ", percent(input), " of a step");
}

// What the pick is the best of.
std::string about_reason(const Choice& choice, const Question& asked) {
  if (asked.within_hours == 0 && asked.budget == 0) return "";
  const char* const sure = is_sure(choice, asked) ? " surely " : " probably ";
  std::vector<std::string> limits;
  if (asked.within_hours > 0) limits.push_back("ends within " + hours_text(asked.within_hours));
  if (asked.budget > 0) limits.push_back("costs at most " + money_text(asked.budget, asked));
  const char* const best = asked.within_hours == 0         ? ", the fastest"
                           : asked.machine.all_price() > 0 ? ", the cheapest"
                                                           : ", the one with the fewest places";
  const char* const among = choice.is_trained() ? " of those trained" : "";
  return concat(best, among, " that", sure, joined(limits, " and "));
}

// The first sentence: time and money where they were asked for, or else the rate.
std::string about_pick(const Choice& choice, const Question& asked) {
  const std::string text = concat("Take ", describe(choice), about_reason(choice, asked), ": ");
  if (choice.hours == 0) return concat(text, about_rate(choice), ".");
  const UnitOfTime unit = unit_of_time(choice.hours);
  const std::string cost = choice.cost == 0 ? ""
                                            : concat(" and ", money_text(choice.cost, asked),
                                                  range_around(choice.cost, choice));
  return concat(text, hours_text(choice.hours), range_around(choice.hours * unit.an_hour, choice),
      cost, " for the training. That is ", about_rate(choice), ".");
}

std::string about_places(const Choice& choice) {
  const int places = choice.machine.all_places();
  return concat(places, places == 1 ? " place" : " places");
}

bool is_equal(const Answer& answer, std::size_t choice) {
  return std::ranges::find(answer.equals, choice) != answer.equals.end();
}

// What a faster one takes instead of the pick.
std::string about_expense(const Choice& other, const Choice& picked, const Question& asked) {
  if (other.cost > 0) return concat(" and costs ", money_text(other.cost, asked));
  const bool takes_more = other.machine.all_places() > picked.machine.all_places();
  return takes_more ? concat(" but takes ", about_places(other)) : "";
}

// The first of the others that are possible, and not as fast.
std::string about_next(const Answer& answer) {
  const Choice& picked = answer.choices[*answer.pick];
  for (std::size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& other = answer.choices[i];
    if (i == *answer.pick || is_equal(answer, i) || !is_allowed(other, answer.question)) continue;
    const double ratio = picked.rate() / other.rate();
    if (ratio < 1)
      return concat("; ", describe(other), " is ",
          ratio > 0.5 ? concat("faster by ", percent(1 / ratio - 1))
                      : concat(times(1 / ratio), " as fast"),
          about_expense(other, picked, answer.question));
    return concat("; the next, ", describe(other), " with ", about_places(other), ", reaches ",
        percent(1 / ratio), " of its rate");
  }
  return "";
}

// What decided among those that are as fast.
std::string best_of_equals(const Choice& picked, const std::vector<const Choice*>& others) {
  const double as_dear = picked.cost * (1 + kEqualExpenses);
  const auto is_dearer = [&](const Choice* other) { return other->cost > as_dear; };
  if (std::ranges::all_of(others, is_dearer)) return "the cheapest";
  const int places = picked.machine.all_places(), effort = effort_of(picked);
  std::vector<const Choice*> rivals = others;
  std::erase_if(rivals, [&](const Choice* other) { return other->machine.all_places() > places; });
  if (rivals.empty()) return "the one with the fewest places";
  const char* const among = rivals.size() < others.size() ? " of those with the fewest places" : "";
  const bool is_faster = std::ranges::any_of(rivals, [&](const Choice* rival) {
    return effort_of(*rival) == effort && rival->rate() < picked.rate();
  });
  const bool is_fastest = std::ranges::none_of(
      rivals, [&](const Choice* rival) { return rival->rate() > picked.rate(); });
  const char* const kind = !is_faster   ? "simplest"
                           : is_fastest ? "fastest"
                                        : "fastest of the simplest";
  return concat("the ", kind, among);
}

std::string about_equals(const Answer& answer) {
  constexpr std::size_t kNamed = 3;
  const Choice& picked = answer.choices[*answer.pick];
  std::vector<const Choice*> others;
  for (const std::size_t i : answer.equals)
    if (i != *answer.pick) others.push_back(&answer.choices[i]);
  if (others.empty()) return "";
  std::vector<std::string> names;
  for (const std::size_t i : distinct_equals(answer))
    if (i != *answer.pick && names.size() < kNamed) names.push_back(describe(answer.choices[i]));
  if (others.size() > names.size()) names.push_back(concat(others.size() - names.size(), " more"));
  const std::string last = names.back();
  names.pop_back();
  return concat(picked.is_trained() ? " These trainings do not tell " : " This plan cannot tell ",
      describe(picked), " from ", joined(names), names.empty() ? "" : " and ", last,
      "; the pick is ", best_of_equals(picked, others), ".");
}

// Of those that fit; the first fits.
const Choice& cheapest_of(const std::vector<Choice>& choices) {
  const Choice* cheapest = &choices.front();
  for (const Choice& each : choices)
    if (each.fits() && each.cost < cheapest->cost) cheapest = &each;
  return *cheapest;
}

// The fastest for about the money of the pick, where the cheapest in time was asked for: more
// places for a shorter while cost as much.
std::string about_same_money(const Answer& answer) {
  constexpr double kWorthIt = 1.2;
  const Choice& picked = answer.choices[*answer.pick];
  if (answer.question.within_hours == 0 || picked.cost == 0) return "";
  const Choice* fastest = &picked;
  for (const std::size_t i : best_on_each_machine(answer)) {
    const Choice& each = answer.choices[i];
    const bool is_as_cheap = each.cost <= picked.cost * (1 + kEqualExpenses);
    if (is_as_cheap && is_sure(each, answer.question) && each.rate() > fastest->rate())
      fastest = &each;
  }
  if (fastest->rate() < kWorthIt * picked.rate()) return "";
  return concat(
      " For about the same money ", describe(*fastest), " takes ", hours_text(fastest->hours), ".");
}

// The cheapest, unless it is the pick itself or costs about as much.
std::string about_money(const Answer& answer) {
  const Choice& picked = answer.choices[*answer.pick];
  const Choice& cheapest = cheapest_of(answer.choices);
  if (cheapest.cost >= picked.cost * (1 - kEqualExpenses)) return "";
  return concat(" The cheapest of all, ", describe(cheapest), ", costs ",
      percent(cheapest.cost / picked.cost), " as much and takes ",
      times(cheapest.hours / picked.hours), " as long.");
}

std::string about_failures(const Choice& choice) {
  const Goodput& goodput = choice.goodput;
  if (goodput.share >= 0.995 || goodput.interval == 0) return "";
  return concat(" Snapshots every ", std::lround(goodput.interval), " s and failures leave ",
      percent(goodput.share), " of the time.");
}

// What was measured here, beside what was predicted; of the pick first.
std::string about_trainings(const Answer& answer) {
  const Choice& picked = answer.choices[*answer.pick];
  if (!picked.is_trained()) return "";
  std::vector<std::string> others;
  for (const Choice& each : answer.choices)
    if (&each != &picked && each.is_trained())
      others.push_back(concat(describe(each), " ", rate_of(each)));
  const double predicted = picked.prediction.batch / picked.predicted_seconds;
  std::string text = concat(" Predicted were ", rate_text(predicted), ".");
  if (others.empty()) return text;
  const bool is_fastest = std::ranges::all_of(answer.choices,
      [&](const Choice& each) { return !each.is_trained() || each.rate() <= picked.rate(); });
  if (is_fastest && answer.equals.size() < 2)
    text += concat(
        " It was the fastest of ", others.size() + 1, " that were trained for some steps here.");
  return concat(text, " Trained beside it: ", joined(others), ".");
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
      describe(fastest), ", takes ", hours_text(fastest.hours));
  if (cheapest.cost > 0)
    text += concat(
        ", the cheapest, ", describe(cheapest), ", costs ", money_text(cheapest.cost, asked));
  return text + ".";
}

std::string about_nothing(const Answer& answer) {
  if (answer.choices.empty())
    return concat("Nothing is possible: ",
        answer.impossible.empty() ? "none of the ways that were asked about takes so many places"
                                  : answer.impossible.front().reason,
        ".");
  if (answer.choices.front().fits()) return about_limits(answer);
  const auto least = std::ranges::min_element(answer.choices, {}, &Choice::lacking_bytes);
  return concat("Nothing fits: ", describe(*least), " comes nearest and lacks ",
      gigabytes(least->lacking_bytes),
      " a place. More places for fsdp or stages, a smaller batch, or --checkpoint make it "
      "smaller.");
}

}  // namespace

UnitOfTime unit_of_time(double hours) {
  if (hours < 2.0 / 60) return {3600, "seconds", "s"};
  return hours < 2 ? UnitOfTime{60, "minutes", "min"} : UnitOfTime{1, "hours", "h"};
}

std::string verdict_of(const Answer& answer) {
  if (!answer.pick) return about_nothing(answer);
  const Choice& choice = answer.choices[*answer.pick];
  // What was trained is not compared with what was only predicted.
  const bool is_compared = !choice.is_trained();
  return concat(about_pick(choice, answer.question), " ", about_limit(choice.prediction),
      is_compared ? about_next(answer) : "", ".", about_equals(answer),
      is_compared ? about_same_money(answer) + about_money(answer) : "", about_failures(choice),
      about_trainings(answer));
}

}  // namespace lockstep::plan
