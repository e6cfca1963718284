#include "lockstep/plan/scenario.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "lockstep/core/byte_size.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::plan {
namespace {

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
