#include "lockstep/plan/answer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

constexpr double kHour = 3600;
constexpr double kMostBatch = 1e9;
// A training that keeps less of its time than this comes to no end.
constexpr double kLeastGoodput = 0.01;

double batch_of(const Question& question, int places) {
  return question.is_batch_of_place ? question.batch * places : question.batch;
}

std::string on_nodes(const Machine& machine) {
  return machine.nodes > 1 ? concat(" on ", machine.nodes, " nodes") : "";
}

Machine machine_of(const Question& question, int nodes, int places) {
  Machine machine = question.machine;
  machine.nodes = nodes;
  machine.places = places;
  return machine;
}

/// Collects the choices of a question.
class Asking {
 public:
  Asking(const ModelProfile& profile, const Question& question)
      : answer_{.profile = profile,
            .question = question,
            .choices = {},
            .impossible = {},
            .pick = {}} {}

  Answer run() {
    for (const int nodes : answer_.question.nodes) {
      for (const int places : answer_.question.places)
        ask(machine_of(answer_.question, nodes, places));
    }
    std::stable_sort(answer_.choices.begin(), answer_.choices.end(), is_better);
    compare_with_one_place();
    pick();
    return std::move(answer_);
  }

 private:
  static bool is_better(const Choice& one, const Choice& other) {
    if (one.fits() != other.fits()) return one.fits();
    return one.rate() > other.rate();
  }

  void ask(const Machine& machine) {
    const double batch = batch_of(answer_.question, machine.all_places());
    for (const Way& way : ways_on(machine, answer_.question.ways)) {
      if (way.places() != machine.all_places()) continue;
      const std::string reason = why_not(way, answer_.profile, batch, machine);
      if (reason.empty()) {
        add(machine, predict(answer_.profile, machine, way, batch));
      } else {
        answer_.impossible.push_back({describe(way), reason});
      }
    }
  }

  void add(const Machine& machine, Prediction prediction) {
    Choice choice{.machine = machine, .prediction = std::move(prediction)};
    choice.goodput = goodput_of(answer_.question.failures, machine.nodes);
    if (!(choice.goodput.share >= kLeastGoodput)) {
      answer_.impossible.push_back({concat(describe(choice.prediction.way), on_nodes(machine)),
          concat("failures come every ", answer_.question.failures.between / machine.nodes,
              " s on average, and snapshots and recovery leave no time between them")});
      return;
    }
    choice.hours = answer_.question.samples / choice.rate() / kHour;
    choice.cost = choice.hours * machine.nodes * machine.price;
    if (machine.memory_bytes > 0)
      choice.lacking_bytes = std::max(0.0, choice.prediction.memory_bytes - machine.memory_bytes);
    answer_.choices.push_back(std::move(choice));
  }

  // One place is asked for in any case: speed-ups are over it.
  void compare_with_one_place() {
    const Question& question = answer_.question;
    const double batch = batch_of(question, 1);
    const double alone =
        predict(answer_.profile, machine_of(question, 1, 1), {}, batch).samples_per_second();
    for (Choice& choice : answer_.choices) {
      choice.speed_up = choice.prediction.samples_per_second() / alone;
      choice.efficiency = choice.speed_up / choice.machine.all_places();
    }
  }

  void pick() {
    const auto& choices = answer_.choices;
    if (choices.empty() || !choices.front().fits()) return;
    std::size_t best = 0;
    for (std::size_t i = 1; i < choices.size(); ++i) {
      const bool is_equal = choices[i].rate() >= choices[0].rate() * (1 - kEqualRates);
      if (choices[i].fits() && is_equal &&
          choices[i].machine.all_places() < choices[best].machine.all_places())
        best = i;
    }
    answer_.pick = best;
  }

  Answer answer_;
};

}  // namespace

void check_question(const Question& question) {
  check(question.batch >= 1 && question.batch <= kMostBatch &&
            question.batch == std::floor(question.batch),
      "plan: a batch has a whole number of samples from 1 to ", kMostBatch, ": ", question.batch);
  check(question.samples >= 0 && std::isfinite(question.samples), "plan: a training has no ",
      question.samples, " samples");
  check(question.machine.price == 0 || question.samples > 0,
      "plan: a price makes a cost of the whole training: say its --samples");
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
  return Asking(profile, question).run();
}

std::vector<std::size_t> pareto_front(const Answer& answer) {
  const auto money = [&](const Choice& choice) {
    return choice.cost > 0 ? choice.cost : choice.machine.all_places();
  };
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& own = answer.choices[i];
    if (!own.fits()) continue;
    // Choices are sorted by their rates: all that come before are faster.
    const bool is_beaten = std::any_of(front.begin(), front.end(),
        [&](std::size_t other) { return money(answer.choices[other]) <= money(own); });
    if (!is_beaten) front.push_back(i);
  }
  std::reverse(front.begin(), front.end());
  return front;
}

}  // namespace lockstep::plan
