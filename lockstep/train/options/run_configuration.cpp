#include "lockstep/train/options/run_configuration.h"

#include <sstream>
#include <toml++/toml.h>

#include "lockstep/core/error.h"
#include "lockstep/train/options/train_flags.h"

namespace lockstep {
namespace {

constexpr const char* kAbsent = "no value";

// On one line. Of real numbers the shortest text, where toml++ writes all 17 digits.
std::string toml_of(const FlagValue& value) {
  if (const auto* real = std::get_if<double>(&value)) {
    const std::string text = text_of(*real);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
  }
  const auto* string = std::get_if<std::string>(&value);
  if (string == nullptr) return text_of(value);
  std::ostringstream text;
  text << toml::toml_formatter(toml::value(*string), toml::format_flags::none);
  return text.str();
}

// Another version may have written the same value in another way.
bool is_same(const std::string& a, const std::string& b) {
  if (a == b || a == kAbsent || b == kAbsent) return a == b;
  try {
    return toml::parse("x = " + a) == toml::parse("x = " + b);
  } catch (const toml::parse_error&) {
    return false;
  }
}

// Calls with the flag and its value for each that a file of options has.
template <typename Use>
void each_value(const TrainOptions& options, const Use& use) {
  const TrainOptions usual;
  for (const auto& flag : train_flags().flags()) {
    if (!flag.write) continue;
    const FlagValue value = flag.write(options);
    const bool is_left_out = flag.spec.is_quiet && value == flag.write(usual);
    if (!is_left_out && value != FlagValue()) use(flag.spec, value);
  }
}

std::string value_in(const Configuration& configuration, const std::string& flag) {
  for (const auto& [name, value] : configuration)
    if (name == flag) return value;
  return kAbsent;
}

}  // namespace

std::string config_toml(const TrainOptions& options) {
  std::string text;
  each_value(options, [&](const FlagSpec& flag, const FlagValue& value) {
    text += flag.key() + " = " + toml_of(value) + "\n";
  });
  return text;
}

Configuration run_configuration(const TrainOptions& options) {
  TrainOptions moved = options;
  moved.data.directory.clear();  // the same data may lie elsewhere
  Configuration found;
  each_value(moved, [&](const FlagSpec& flag, const FlagValue& value) {
    if (flag.is_decisive()) found.emplace_back(flag.key(), toml_of(value));
  });
  return found;
}

std::vector<std::string> differences(const Configuration& snapshot, const Configuration& now) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& flag) {
    const std::string before = value_in(snapshot, flag), today = value_in(now, flag);
    if (!is_same(before, today))
      found.push_back(concat("--", flag, ": the snapshot has ", before, ", now ", today));
  };
  for (const auto& [flag, value] : now) compare(flag);
  for (const auto& [flag, value] : snapshot)
    if (value_in(now, flag) == kAbsent) compare(flag);
  return found;
}

std::string unusual_flags(const TrainOptions& options) {
  const TrainOptions usual;
  std::vector<std::string> words;
  for (const auto& flag : train_flags().flags()) {
    if (!flag.write || flag.write(options) == flag.write(usual)) continue;
    words.push_back(flag.spec.name);
    if (flag.spec.takes_value()) words.push_back(text_of(flag.write(options)));
  }
  return joined(words, " ");
}

}  // namespace lockstep
