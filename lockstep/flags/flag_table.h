#pragma once

#include <chrono>
#include <functional>
#include <ostream>
#include <type_traits>
#include <utility>

#include "lockstep/core/enum_names.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_spec.h"

namespace lockstep {

/// One flag of a command: how it is named and explained, what it takes, and how its value comes
/// into the options and out of them. The setters are chained.
template <typename Options>
struct Flag {
  using Read = std::function<void(Options&, const FlagSpec&, const std::string&)>;
  using Write = std::function<FlagValue(const Options&)>;

  FlagSpec spec;
  Read read;    ///< none: the caller asks GivenFlags for it
  Write write;  ///< none: it is not among the options

  Flag& letter(std::string text) { return set(spec.letter, std::move(text)); }
  Flag& variable(std::string name) { return set(spec.variable, std::move(name)); }
  Flag& or_word(std::string word) { return set(spec.other_word, std::move(word)); }
  Flag& one_of(std::vector<std::string> words) { return set(spec.words, std::move(words)); }
  template <typename Value>
  Flag& usually(const Value& value) {
    return set(spec.usual, concat(value));
  }
  Flag& from(double least) { return set(spec.least, least); }
  Flag& to(double most) { return set(spec.most, most); }
  Flag& within(double least, double most) { return from(least).to(most); }
  Flag& above(double least) { return set(spec.is_above_least, true).from(least); }
  Flag& below(double most) { return set(spec.is_below_most, true).to(most); }
  Flag& fraction() { return from(0).below(1); }
  Flag& whole() { return set(spec.kind, FlagSpec::Kind::kWhole); }
  Flag& real() { return set(spec.kind, FlagSpec::Kind::kReal); }
  Flag& read_by(Read how) { return set(read, std::move(how)); }
  Flag& written_by(Write how) { return set(write, std::move(how)); }
  Flag& required() { return set(spec.is_required, true); }
  Flag& repeated() { return set(spec.is_repeated, true); }
  Flag& may_change() { return set(spec.may_change, true); }
  Flag& unless_usual() { return set(spec.is_quiet, true); }
  Flag& for_launcher() { return set(spec.is_for_launcher, true); }
  Flag& may_be_empty() { return set(spec.may_be_empty, true); }

 private:
  template <typename Field, typename Value>
  Flag& set(Field& field, Value value) {
    field = std::move(value);
    return *this;
  }
};

template <typename Value>
inline constexpr bool kIsOptional = false;
template <typename Value>
inline constexpr bool kIsOptional<std::optional<Value>> = true;

/// Reads the text of a flag into a member, as the member's type says; a duration in seconds.
template <typename Value>
void read_value(const FlagSpec& flag, const std::string& text, Value& value) {
  if constexpr (kIsOptional<Value>) {
    typename Value::value_type inner{};
    read_value(flag, text, inner);
    value = std::move(inner);
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = !flag.is_negative;
  } else if constexpr (std::is_enum_v<Value>) {
    const std::string& word = flag.word(text);
    for (const auto& entry : names_of(Value{}))
      if (entry.name == word) value = entry.value;
  } else if constexpr (std::is_integral_v<Value>) {
    using Limits = std::numeric_limits<Value>;
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    const auto most = sizeof(Value) < 8 ? static_cast<std::int64_t>(Limits::max()) : kMost;
    const auto least = static_cast<std::int64_t>(Limits::min());
    value = static_cast<Value>(flag.whole_number(text, least, most));
  } else if constexpr (std::is_floating_point_v<Value>) {
    value = flag.real_number(text);
  } else if constexpr (std::is_same_v<Value, std::chrono::milliseconds>) {
    value = std::chrono::milliseconds(static_cast<std::int64_t>(flag.real_number(text) * 1000));
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    if (flag.is_repeated) {
      value.push_back(text);
    } else {
      value = split(text, ',');
      for (const std::string& item : value) {
        check(!item.empty(), flag.verb, ": ", flag.name, " must be ", flag.value, ": '", text, "'");
        flag.word(item);
      }
    }
  } else {
    value = flag.word(text);
  }
}

/// Writes a member as its flag would give it.
template <typename Value>
FlagValue written_value(const Value& value) {
  if constexpr (kIsOptional<Value>) {
    return value ? written_value(*value) : FlagValue();
  } else if constexpr (std::is_enum_v<Value>) {
    return std::string(name_of(value));
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? FlagValue(true) : FlagValue();
  } else if constexpr (std::is_integral_v<Value>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
    return value.empty() ? FlagValue() : FlagValue(joined(value, ","));
  } else if constexpr (std::is_floating_point_v<Value>) {
    return value;
  } else if constexpr (std::is_same_v<Value, std::chrono::milliseconds>) {
    return std::chrono::duration<double>(value).count();
  } else {
    return value.empty() ? FlagValue() : FlagValue(std::string(value));
  }
}

template <typename Value>
FlagSpec::Kind kind_of_value() {
  if constexpr (kIsOptional<Value>) {
    return kind_of_value<typename Value::value_type>();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return FlagSpec::Kind::kSwitch;
  } else if constexpr (std::is_floating_point_v<Value> ||
                       std::is_same_v<Value, std::chrono::milliseconds>) {
    return FlagSpec::Kind::kReal;
  } else {
    return std::is_integral_v<Value> ? FlagSpec::Kind::kWhole : FlagSpec::Kind::kText;
  }
}

template <typename Value>
std::vector<std::string> words_of_value() {
  if constexpr (kIsOptional<Value>) {
    return words_of_value<typename Value::value_type>();
  } else if constexpr (NamedEnum<Value>) {
    return all_names<Value>();
  } else {
    return {};
  }
}

/// Declares a flag with a reader and a writer of its own, for what is not one member; an empty
/// `value` makes it a switch.
template <typename Options>
Flag<Options> flag_by(const std::string& name, const std::string& value, const std::string& help,
    typename Flag<Options>::Read read = nullptr, typename Flag<Options>::Write write = nullptr) {
  Flag<Options> made;
  made.spec.name = name;
  made.spec.kind = value.empty() ? FlagSpec::Kind::kSwitch : FlagSpec::Kind::kText;
  made.spec.value = value;
  made.spec.help = help;
  made.read = std::move(read);
  made.write = std::move(write);
  return made;
}

/// Declares the flag of a member, which may be nested; its type says what the flag takes.
///
///     flag("--lr", "X", "learning rate", &TrainOptions::optimizer,
///     &OptimizerSettings::lr).above(0)
template <typename Options, typename Member, typename... Path>
Flag<Options> flag(
    std::string name, std::string value, std::string help, Member Options::*first, Path... path) {
  using Value = std::remove_reference_t<decltype(((std::declval<Options&>().*first).*....*path))>;
  Flag<Options> made = flag_by<Options>(
      std::move(name), std::move(value), std::move(help),
      [=](Options& options, const FlagSpec& spec, const std::string& text) {
        read_value(spec, text, ((options.*first).*....*path));
      },
      [=](const Options& options) { return written_value(((options.*first).*....*path)); });
  made.spec.kind = kind_of_value<Value>();
  made.spec.words = words_of_value<Value>();
  return made;
}

/// Declares a switch: a flag without a value.
template <typename Options, typename Member, typename... Path>
Flag<Options> flag_on(std::string name, std::string help, Member Options::*first, Path... path) {
  return flag(std::move(name), "", std::move(help), first, path...);
}

/// Declares a switch that turns a member off: `--no-pin`.
template <typename Options, typename Member, typename... Path>
Flag<Options> flag_off(std::string name, std::string help, Member Options::*first, Path... path) {
  Flag<Options> made = flag(std::move(name), "", std::move(help), first, path...);
  made.spec.is_negative = true;
  made.write = nullptr;
  return made;
}

/// Flags under one heading of the help.
template <typename Options>
struct FlagGroup {
  std::string heading;
  std::vector<Flag<Options>> flags;
};

/// All flags of a verb, each declared once. Of a flag that is given twice the last counts.
template <typename Options>
class FlagTable {
 public:
  /// Appends `--help` to the last group. What a flag usually is comes from the defaults of Options
  /// where nothing else is said.
  FlagTable(VerbText text, std::vector<FlagGroup<Options>> groups) : text_(std::move(text)) {
    groups.back().flags.push_back(flag_by<Options>("--help", "", "print this").letter("-h"));
    const Options defaults{};
    for (auto& group : groups) {
      for (auto& each : group.flags) {
        each.spec.group = group.heading;
        each.spec.verb = text_.verb;
        each.spec.is_option = each.write != nullptr;
        if (each.write && !each.spec.usual && each.spec.takes_value())
          each.spec.usual = text_of(each.write(defaults));
        flags_.push_back(std::move(each));
      }
    }
  }

  const std::vector<Flag<Options>>& flags() const { return flags_; }

  FlagSpecs specs() const {
    FlagSpecs specs;
    for (const auto& each : flags_) specs.push_back(&each.spec);
    return specs;
  }

  const FlagSpec& spec(std::string_view name) const {
    for (const auto& each : flags_)
      if (each.spec.name == name) return each.spec;
    throw InvalidArgument(concat(text_.verb, ": there is no flag ", name));
  }

  GivenFlags parse(
      const std::vector<std::string>& words, AfterFlags after = AfterFlags::kNothing) const {
    return parse_flags(text_.verb, specs(), words, after);
  }

  /// Reads what was given into the options, in the order of the table; flags that were not given
  /// from their variables of the environment.
  void read(Options& options, const GivenFlags& given) const {
    for (const auto& each : flags_) {
      if (!each.read) continue;
      if (!given.has(each.spec.name)) read_variable(each, options);
      for (const std::string& text : texts_of(each.spec, given))
        each.read(options, each.spec, text);
    }
  }

  /// Throws InvalidArgument for a number outside the range of its flag.
  void check_ranges(const Options& options) const {
    for (const auto& each : flags_)
      if (each.write) each.spec.check_range(each.write(options));
  }

  std::string help() const { return help_text(text_, specs()); }

  /// Reads a whole command line; nothing if it asks for help, which is then printed.
  std::optional<Options> request(
      const std::vector<std::string>& words, std::ostream& out, Options options = {}) const {
    const GivenFlags given = parse(words);
    if (given.asks_help) {
      out << help();
      return std::nullopt;
    }
    read(options, given);
    return options;
  }

 private:
  static std::vector<std::string> texts_of(const FlagSpec& spec, const GivenFlags& given) {
    if (spec.is_repeated) return given.all(spec.name);
    const auto last = given.find(spec.name);
    return last ? std::vector{*last} : std::vector<std::string>();
  }

  static void read_variable(const Flag<Options>& flag, Options& options) {
    const auto text = flag.spec.variable_text();
    if (!text) return;
    FlagSpec spec = flag.spec;
    spec.name = concat(spec.variable, ", which stands for ", spec.name, ',');
    flag.read(options, spec, *text);
  }

  VerbText text_;
  std::vector<Flag<Options>> flags_;
};

}  // namespace lockstep
