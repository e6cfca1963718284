#include "lockstep/flags/flag_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr std::size_t kHelpColumn = 34;

std::string shortest(double value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  return {text, written.ptr};
}

// A bound as people write it: 1000000, not 1e+06.
std::string bound_text(double bound) {
  constexpr double kExact = 9e15;
  const bool is_whole = std::abs(bound) < kExact && std::trunc(bound) == bound;
  return is_whole ? std::to_string(static_cast<std::int64_t>(bound)) : shortest(bound);
}

std::string range_text(const FlagSpec& spec) {
  const bool has_least = spec.least > -std::numeric_limits<double>::infinity();
  const bool has_most = spec.most < std::numeric_limits<double>::infinity();
  const std::string least = bound_text(spec.least), most = bound_text(spec.most);
  if (!has_least && !has_most) return "";
  if (has_least && has_most && !spec.is_above_least && !spec.is_below_most)
    return " from " + least + " to " + most;
  std::string text;
  if (has_least) text = (spec.is_above_least ? " above " : " of at least ") + least;
  if (has_most) {
    text += has_least ? " and" : "";
    text += (spec.is_below_most ? " below " : " of at most ") + most;
  }
  return text;
}

std::string help_of(const FlagSpec& spec) {
  std::string text = spec.help;
  if (const auto at = text.find("{}"); at != std::string::npos)
    text.replace(at, 2, joined(spec.words));
  if (spec.usual.value_or("").empty()) return text;
  return text + (text.empty() || text.ends_with('\n') ? "[" : " [") + *spec.usual + "]";
}

std::string with_letter(const FlagSpec& spec) {
  return (spec.letter.empty() ? "" : spec.letter + ",") + spec.name +
         (spec.takes_value() && !spec.is_argument() ? " " + spec.value : "");
}

std::string help_row(const FlagSpec& spec) {
  std::string row = "  " + with_letter(spec);
  if (row.size() >= kHelpColumn) row += "\n";
  const std::size_t begin = row.ends_with('\n') ? row.size() : 0;
  const std::string margin(kHelpColumn, ' ');
  row.resize(begin + kHelpColumn, ' ');
  for (const char letter : help_of(spec)) {
    row += letter;
    if (letter == '\n') row += margin;
  }
  return row + "\n";
}

std::vector<std::string> groups_of(const FlagSpecs& specs) {
  std::vector<std::string> groups;
  for (const FlagSpec* spec : specs)
    if (groups.empty() || groups.back() != spec->group) groups.push_back(spec->group);
  return groups;
}

using Words = std::vector<std::string>;

// Writes a flag's name with dashes; its value stays: `--log_dir=a_b` becomes `--log-dir=a_b`.
std::string with_usual_name(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  const std::string value = word.substr(name.size());
  if (name == "-np") return "--nproc-per-node" + value;
  if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
  return name + value;
}

class CommandLine {
 public:
  CommandLine(const std::string& verb, const FlagSpecs& known, const Words& words)
      : verb_(verb), known_(known), next_(words.begin()), end_(words.end()) {}

  GivenFlags parse(AfterFlags after) {
    while (next_ != end_ && !given_.asks_help) {
      const bool is_flag = next_->size() > 1 && next_->front() == '-';
      if (*next_ == "--") {
        ++next_;
        break;
      }
      if (!is_flag && after == AfterFlags::kProgram) break;
      const std::string word = *next_++;
      is_flag ? take_flag(word) : take_argument(word);
    }
    if (after == AfterFlags::kProgram) {
      given_.program.assign(next_, end_);
    } else {
      while (next_ != end_ && !given_.asks_help) take_argument(*next_++);
    }
    if (!given_.asks_help) check_arguments();
    return std::move(given_);
  }

 private:
  void take_flag(const std::string& word) {
    const std::string flag = with_usual_name(word), name = flag.substr(0, flag.find('='));
    if (name == "--help" || name == "-h") {
      given_.asks_help = true;
      return;
    }
    if (const FlagSpec* spec = find(name)) return take_value(*spec, word, flag.substr(name.size()));
    const FlagSpec* letter = name.starts_with("--") ? nullptr : find(name.substr(0, 2));
    if (letter == nullptr) refuse(name);
    if (letter->takes_value()) return take_value(*letter, word, concat("=", flag.substr(2)));
    take_value(*letter, word.substr(0, 2), "");
    take_flag(concat("-", word.substr(2)));
  }

  // `rest` is what follows the name in the same word: nothing, or =VALUE.
  void take_value(const FlagSpec& spec, const std::string& word, const std::string& rest) {
    GivenFlag flag{&spec, "", {word}};
    if (!spec.takes_value()) {
      check(rest.empty(), verb_, ": ", spec.name, " takes no value: ", word);
    } else if (!rest.empty()) {
      flag.value = rest.substr(1);
    } else {
      check(next_ != end_ && !next_->starts_with("--"), verb_, ": ", spec.name,
          " needs a value: ", spec.value);
      flag.value = *next_++;
      flag.words.push_back(flag.value);
    }
    add(std::move(flag));
  }

  void add(GivenFlag flag) {
    const FlagSpec& spec = *flag.spec;
    check(!spec.takes_value() || spec.may_be_empty || !flag.value.empty(), verb_, ": ", spec.name,
        " must not be empty");
    given_.flags.push_back(std::move(flag));
  }

  void take_argument(const std::string& word) {
    for (const FlagSpec* spec : known_) {
      if (!spec->is_argument() || (given_.has(spec->name) && !spec->is_repeated)) continue;
      return add({spec, word, {word}});
    }
    refuse(word);
  }

  void check_arguments() const {
    for (const FlagSpec* spec : known_)
      check(!spec->is_required || given_.has(spec->name), verb_, ": ", spec->name, " is required");
  }

  const FlagSpec* find(const std::string& name) const {
    for (const FlagSpec* spec : known_)
      if (spec->name == name || (!name.empty() && spec->letter == name)) return spec;
    return nullptr;
  }

  [[noreturn]] void refuse(const std::string& name) const {
    Words names = {"--help"};
    for (const FlagSpec* spec : known_)
      if (!spec->is_argument()) names.push_back(spec->name);
    throw InvalidArgument(concat(verb_, ": there is no flag ", name, did_you_mean(name, names)));
  }

  const std::string& verb_;
  const FlagSpecs& known_;
  Words::const_iterator next_, end_;
  GivenFlags given_;
};

}  // namespace

std::string text_of(const FlagValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* real = std::get_if<double>(&value)) return shortest(*real);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  const auto* is_on = std::get_if<bool>(&value);
  return is_on == nullptr ? "" : (*is_on ? "true" : "false");
}

std::string FlagSpec::expected() const {
  std::string text = "a value";
  if (!words.empty()) text = "one of " + joined(words);
  if (kind == Kind::kWhole) text = "a whole number" + range_text(*this);
  if (kind == Kind::kReal) text = "a number" + range_text(*this);
  return other_word.empty() ? text : text + ", or " + other_word;
}

void FlagSpec::refuse(const std::string& text) const {
  throw InvalidArgument(
      concat(verb, ": ", name, " must be ", expected(), ": ", text, did_you_mean(text, words)));
}

std::int64_t FlagSpec::whole_number(
    const std::string& text, std::int64_t type_least, std::int64_t type_most) const {
  const auto number = parse_number<std::int64_t>(text);
  if (!number || *number < type_least || *number > type_most) refuse(text);
  check_range(*number);
  return *number;
}

double FlagSpec::real_number(const std::string& text) const {
  const auto number = parse_number<double>(text);
  if (!number) refuse(text);
  check_range(*number);
  return *number;
}

const std::string& FlagSpec::word(const std::string& text) const {
  for (const std::string& known : words)
    if (known == text) return known;
  if (!words.empty()) refuse(text);
  return text;
}

std::optional<std::string> FlagSpec::variable_text() const {
  if (variable.empty()) return std::nullopt;
  if (may_be_empty && std::getenv(variable.c_str()) != nullptr)
    return system_variable(variable.c_str());
  const auto text = environment(variable.c_str());
  if (takes_value()) return text;
  const bool is_off = text == "0" || text == "false";
  check(!text || is_off || text == "1" || text == "true", verb, ": ", variable,
      ", which stands for ", name, ", must be 1 or 0: ", text.value_or(""));
  return is_off ? std::nullopt : text;
}

void FlagSpec::check_range(const FlagValue& given) const {
  double number = 0;
  if (const auto* whole = std::get_if<std::int64_t>(&given)) {
    number = static_cast<double>(*whole);
  } else if (const auto* real = std::get_if<double>(&given)) {
    number = *real;
  } else {
    return;
  }
  const bool is_low = is_above_least ? !(number > least) : !(number >= least);
  const bool is_high = is_below_most ? !(number < most) : !(number <= most);
  const bool is_infinite = number - number != 0;
  if (is_low || is_high || is_infinite) refuse(text_of(given));
}

std::optional<std::string> GivenFlags::find(std::string_view name) const {
  const auto values = all(name);
  return values.empty() ? std::nullopt : std::optional(values.back());
}

std::vector<std::string> GivenFlags::all(std::string_view name) const {
  std::vector<std::string> values;
  for (const GivenFlag& flag : flags)
    if (flag.spec->name == name) values.push_back(flag.value);
  return values;
}

std::string help_text(const VerbText& text, const FlagSpecs& specs) {
  std::string help = text.description + "\nUsage: " + text.usage + "\n";
  for (const std::string& group : groups_of(specs)) {
    help += "\n" + group + ":\n";
    for (const FlagSpec* spec : specs)
      if (spec->group == group) help += help_row(*spec);
  }
  return help + (text.footer.empty() ? "" : "\n" + text.footer + "\n");
}

GivenFlags parse_flags(
    const std::string& verb, const FlagSpecs& known, const Words& words, AfterFlags after) {
  return CommandLine(verb, known, words).parse(after);
}

}  // namespace lockstep
