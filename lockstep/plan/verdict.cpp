#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/core/error.h"
#include "lockstep/plan/answer.h"

namespace lockstep::plan {
namespace {

std::string percent(double share) { return concat(std::lround(100 * share), " %"); }

std::string rate_text(double rate) {
  const double scale = rate >= 100 ? 1 : rate >= 10 ? 10 : 100;
  return concat(std::round(rate * scale) / scale, " samples/s");
}

std::string times(double factor) { return concat(std::round(factor * 100) / 100, " times"); }

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

std::string about_next(const Answer& answer) {
  const Choice& picked = answer.choices[*answer.pick];
  for (std::size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& other = answer.choices[i];
    if (i == *answer.pick || !other.fits()) continue;
    const double ratio = picked.rate() / other.rate();
    if (ratio < 1)
      return concat("; ", describe(other.prediction.way), " is faster by ", percent(1 / ratio - 1),
          " but takes ", other.machine.all_places(), " places");
    return concat("; the next, ", describe(other.prediction.way), " on ",
        other.machine.all_places(), other.machine.all_places() == 1 ? " place" : " places",
        ", reaches ", percent(1 / ratio), " of its rate");
  }
  return "";
}

std::string about_failures(const Choice& choice) {
  const Goodput& goodput = choice.goodput;
  if (goodput.share >= 0.995 || goodput.interval == 0) return "";
  return concat(" Snapshots every ", std::lround(goodput.interval), " s and failures leave ",
      percent(goodput.share), " of the time.");
}

std::string about_nothing(const Answer& answer) {
  if (answer.choices.empty())
    return concat("Nothing is possible: ",
        answer.impossible.empty() ? "no way was asked for" : answer.impossible.front().reason, ".");
  const auto least = std::min_element(
      answer.choices.begin(), answer.choices.end(), [](const Choice& one, const Choice& other) {
        return one.lacking_bytes < other.lacking_bytes;
      });
  return concat("Nothing fits: ", describe(least->prediction.way), " comes nearest and lacks ",
      std::ceil(least->lacking_bytes / 1e6),
      " MB a place. More stages, a smaller batch, or --checkpoint of lockstep train make it "
      "smaller.");
}

}  // namespace

std::string verdict_of(const Answer& answer, std::optional<double> measured) {
  if (!answer.pick) return about_nothing(answer);
  const Choice& choice = answer.choices[*answer.pick];
  const Prediction& prediction = choice.prediction;
  const int places = choice.machine.all_places();
  std::string text = concat("Take ", describe(prediction.way),
      choice.machine.nodes > 1 ? concat(" on ", choice.machine.nodes, " nodes") : "", ": ",
      measured
          ? concat(rate_text(prediction.batch / *measured), " as trained here; predicted were ")
          : "",
      rate_text(prediction.samples_per_second()));
  if (places > 1) {
    text += concat(", ", times(choice.speed_up), " those of one place (",
        percent(choice.efficiency), " efficiency)");
  }
  return concat(text, ". ", about_limit(prediction), measured ? "" : about_next(answer), ".",
      about_failures(choice));
}

}  // namespace lockstep::plan
