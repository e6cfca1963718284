#include "lockstep/data/transforms/rand_augment.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::data {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename... Parts>
void check_config(bool condition, std::string_view config, const Parts&... reason) {
  check(condition, "RandAugment: ", reason..., " in \"", config,
      "\"; give a string as \"rand-m9-mstd0.5-inc1\"");
}

double number_of(std::string_view text, std::string_view config) {
  const auto number = parse_number<double>(text);
  check_config(number && *number >= 0, config, "no number: \"", text, "\"");
  return *number;
}

double whole_of(std::string_view text, std::string_view config) {
  const double number = number_of(text, config);
  check_config(
      number == std::floor(number) && number <= 1000, config, "no whole number: \"", text, "\"");
  return number;
}

void read_section(std::string_view section, std::string_view config, RandAugmentOptions& options) {
  const std::size_t at = section.find_first_of("0123456789");
  check_config(at != section.npos, config, "a section without a number: \"", section, "\"");
  const std::string_view name = section.substr(0, at);
  const std::string_view text = section.substr(at);
  if (name == "m") {
    options.magnitude = whole_of(text, config);
  } else if (name == "n") {
    options.layers = static_cast<std::int64_t>(whole_of(text, config));
  } else if (name == "p") {
    options.probability = number_of(text, config);
    check_config(options.probability <= 1, config, "a probability over 1: ", text);
  } else if (name == "mstd") {
    const double deviation = number_of(text, config);
    options.deviation = deviation > 100 ? kInfinity : deviation;
  } else if (name == "mmax") {
    options.maximum = whole_of(text, config);
  } else if (name == "inc") {
    options.increasing = whole_of(text, config) != 0;
  } else {
    check_config(false, config, "an unknown section: \"", section, "\"");
  }
}

// Whole numbers that Python's int() gives.
double truncated(double x) { return std::trunc(x); }

double factor_argument(double level, bool increasing, double sign) {
  if (!increasing) return level * 1.8 + 0.1;
  return std::max(0.1, 1 + sign * (level * .9));
}

double draw_magnitude(const RandAugmentOptions& options, RandomStream& stream) {
  double magnitude = options.magnitude;
  if (std::isinf(options.deviation)) {
    magnitude = stream.uniform(0, magnitude);
  } else if (options.deviation > 0) {
    magnitude = stream.normal(magnitude, options.deviation);
  }
  return std::clamp(magnitude, 0., options.maximum);
}

}  // namespace

RandAugmentOptions parse_rand_augment(std::string_view config) {
  RandAugmentOptions options;
  std::size_t dash = config.find('-');
  check_config(config.substr(0, dash) == "rand", config, "no \"rand\" at the start");
  while (dash != config.npos) {
    const std::size_t start = dash + 1;
    dash = config.find('-', start);
    read_section(config.substr(start, dash - start), config, options);
  }
  // timm takes a maximum of 0 for none given.
  if (options.maximum == 0) options.maximum = RandAugmentOptions{}.maximum;
  return options;
}

double augment_argument(AugmentOp op, double magnitude, bool increasing, bool negated) {
  const double level = magnitude / 10;
  const double sign = negated ? -1 : 1;
  switch (op) {
    case AugmentOp::kRotate:
      return sign * (level * 30);
    case AugmentOp::kPosterize:
      return increasing ? 4 - truncated(level * 4) : truncated(level * 4);
    case AugmentOp::kSolarize: {
      const double threshold = std::min(256., truncated(level * 256));
      return increasing ? 256 - threshold : threshold;
    }
    case AugmentOp::kSolarizeAdd:
      return std::min(128., truncated(level * 110));
    case AugmentOp::kSaturation:
    case AugmentOp::kContrast:
    case AugmentOp::kBrightness:
    case AugmentOp::kSharpness:
      return factor_argument(level, increasing, sign);
    case AugmentOp::kShearX:
    case AugmentOp::kShearY:
      return sign * (level * 0.3);
    case AugmentOp::kTranslateX:
    case AugmentOp::kTranslateY:
      return sign * (level * 0.45);
    default:
      return 0;
  }
}

std::vector<AugmentStep> draw_steps(const RandAugmentOptions& options, RandomStream& stream) {
  std::vector<AugmentStep> steps;
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    const auto op = static_cast<AugmentOp>(stream.integer(0, kAugmentOps - 1));
    if (stream.uniform() >= options.probability) continue;
    const double magnitude = draw_magnitude(options, stream);
    const bool negated = stream.uniform() < 0.5;
    steps.push_back({op, augment_argument(op, magnitude, options.increasing, negated)});
  }
  return steps;
}

}  // namespace lockstep::data
