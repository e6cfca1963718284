#include "lockstep/data/transforms/rand_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/transforms/ops/colour.h"

namespace lockstep::data {
namespace {

AffineMap affine_map(const AugmentStep& step, ImageSize size) {
  switch (step.op) {
    case AugmentOp::kShearX:
      return {.xy = step.argument};
    case AugmentOp::kShearY:
      return {.yx = step.argument};
    case AugmentOp::kTranslateX:
      return {.x0 = step.argument * static_cast<double>(size.width)};
    case AugmentOp::kTranslateY:
      return {.y0 = step.argument * static_cast<double>(size.height)};
    default:
      return rotation(size, step.argument);
  }
}

struct Property {
  AugmentOp op;
  double bound;
};

void shuffle(std::array<Property, 3>& properties, RandomStream& stream) {
  for (std::size_t i = properties.size() - 1; i > 0; --i) {
    const auto other = stream.integer(0, static_cast<std::int64_t>(i));
    std::swap(properties[i], properties[static_cast<std::size_t>(other)]);
  }
}

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

Image apply_step(Image image, const AugmentStep& step, const AffineOptions& options) {
  switch (step.op) {
    case AugmentOp::kAutoContrast:
      return auto_contrast(std::move(image));
    case AugmentOp::kEqualize:
      return equalize(std::move(image));
    case AugmentOp::kInvert:
      return invert(std::move(image));
    case AugmentOp::kPosterize:
      return posterize(std::move(image), static_cast<int>(step.argument));
    case AugmentOp::kSolarize:
      return solarize(std::move(image), static_cast<int>(step.argument));
    case AugmentOp::kSolarizeAdd:
      return solarize_add(std::move(image), static_cast<int>(step.argument));
    case AugmentOp::kSaturation:
      return saturation(std::move(image), step.argument);
    case AugmentOp::kContrast:
      return contrast(std::move(image), step.argument);
    case AugmentOp::kBrightness:
      return brightness(std::move(image), step.argument);
    case AugmentOp::kSharpness:
      return sharpness(image.view(), step.argument);
    default:
      return transform_affine(image.view(), affine_map(step, image.size), options);
  }
}

std::vector<AugmentStep> draw_jitter(const ColourJitter& jitter, RandomStream& stream) {
  std::array<Property, 3> properties{{{AugmentOp::kBrightness, jitter.brightness},
      {AugmentOp::kContrast, jitter.contrast}, {AugmentOp::kSaturation, jitter.saturation}}};
  shuffle(properties, stream);
  std::vector<AugmentStep> steps;
  for (const auto& [op, bound] : properties) {
    if (bound > 0) steps.push_back({op, stream.uniform(std::max(0., 1 - bound), 1 + bound)});
  }
  return steps;
}

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
      // Beyond the greatest magnitude no bit is left, and the image is black.
      return increasing ? std::max(0., 4 - std::trunc(level * 4)) : std::trunc(level * 4);
    case AugmentOp::kSolarize: {
      const double threshold = std::min(256., std::trunc(level * 256));
      return increasing ? 256 - threshold : threshold;
    }
    case AugmentOp::kSolarizeAdd:
      return std::min(128., std::trunc(level * 110));
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
