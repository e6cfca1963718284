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

FlagValue value_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
  if (const auto is_on = node.value_exact<bool>()) return *is_on;
  return node.value<double>().value_or(0);
}

toml::table parsed_toml(const std::string& toml, const std::string& file) {
  try {
    return toml::parse(toml);
  } catch (const toml::parse_error& error) {
    throw DataError(
        concat(file, ": line ", error.source().begin.line, ": is not TOML: ", error.description()));
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

bool is_decisive(const std::string& key) {
  for (const auto& flag : train_flags().flags())
    if (flag.spec.key() == key) return flag.spec.is_decisive();
  return false;  // of another version
}

// Of what hosts may have at different places: whether it is given.
std::string presence(const std::string& path) { return path.empty() ? "" : "given"; }

}  // namespace

std::string value_in(const Configuration& configuration, const std::string& flag) {
  for (const auto& [name, value] : configuration)
    if (name == flag) return value;
  return kAbsent;
}

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
  return begun_configuration(moved);
}

Configuration begun_configuration(const TrainOptions& options) {
  Configuration found;
  each_value(options, [&](const FlagSpec& flag, const FlagValue& value) {
    if (flag.is_decisive()) found.emplace_back(flag.key(), toml_of(value));
  });
  return found;
}

Configuration parse_configuration(const std::string& toml, const std::string& file) {
  Configuration found;
  for (const auto& [key, value] : parsed_toml(toml, file))
    if (is_decisive(std::string(key))) found.emplace_back(key, toml_of(value_of(value)));
  return found;
}

TrainOptions recorded_options(const std::string& toml, const std::string& file) {
  const toml::table recorded = parsed_toml(toml, file);
  TrainOptions options;
  options.kernels = nn::Kernels::kLibTorch;
  for (const auto& flag : train_flags().flags()) {
    const toml::node* const value = recorded.get(flag.spec.key());
    if (value == nullptr || !flag.read || !flag.write) continue;
    if (value->value_exact<bool>() == false) continue;
    try {
      flag.read(options, flag.spec, text_of(value_of(*value)));
    } catch (const InvalidArgument& error) {
      throw DataError(concat(file, ": ", error.what()));
    }
  }
  return options;
}

Configuration shared_configuration(const TrainOptions& options) {
  const TrainOptions usual;
  TrainOptions shared = options;
  shared.plugin = presence(options.plugin);
  shared.pretrained = presence(options.pretrained);
  shared.data.directory = usual.data.directory;
  shared.resume.from = presence(options.resume.from);
  shared.output = usual.output;  // made of the clock where it is not given; only rank 0 writes it
  shared.progress = usual.progress;                // only rank 0 shows it
  shared.loading.workers = usual.loading.workers;  // as many as a host has cores for
  Configuration found;
  each_value(shared, [&](const FlagSpec& flag, const FlagValue& value) {
    const bool is_precision = flag.name == "--precision";  // of which `auto` is told apart
    found.emplace_back(flag.name, is_precision ? precision_text(options) : toml_of(value));
  });
  return found;
}

std::vector<std::string> differences(
    const Configuration& before, const Configuration& now, const std::string& name) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& flag) {
    const std::string then = value_in(before, flag), today = value_in(now, flag);
    if (!is_same(then, today))
      found.push_back(concat("--", flag, ": ", name, " has ", then, ", now ", today));
  };
  for (const auto& [flag, value] : now) compare(flag);
  for (const auto& [flag, value] : before)
    if (value_in(now, flag) == kAbsent) compare(flag);
  return found;
}

std::string unusual_flags(const TrainOptions& options) {
  const TrainOptions usual;
  std::vector<std::string> words;
  for (const auto& flag : train_flags().flags()) {
    if (!flag.write || flag.write(options) == flag.write(usual)) continue;
    const bool is_kernels = flag.spec.name == "--kernels";  // whose absence is a value
    const FlagValue value =
        is_kernels ? FlagValue(std::string(name_of(options.kernels))) : flag.write(options);
    if (value == FlagValue()) continue;  // a limit that another one takes the place of
    words.push_back(flag.spec.name);
    if (flag.spec.takes_value()) words.push_back(text_of(value));
  }
  return joined(words, " ");
}

}  // namespace lockstep
