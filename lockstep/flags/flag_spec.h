#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace lockstep {

/// The value of an option as TOML distinguishes it; std::monostate where the option has none.
using FlagValue = std::variant<std::monostate, bool, std::int64_t, double, std::string>;

/// Writes a value as its flag takes it: `0.1`, `1e-05`, `toy`; empty for none.
std::string text_of(const FlagValue& value);

/// A flag of a command, without the options that it belongs to.
struct FlagSpec {
  enum class Kind { kSwitch, kText, kWhole, kReal };

  std::string verb;                  ///< with which its messages begin: `train`
  std::string name;                  ///< `--batch-size`; without dashes it is an argument: `OUT`
  std::string letter;                ///< `-b`, or none
  std::string value;                 ///< that stands for its value in the help: `N`
  std::string help;                  ///< `{}` stands for the words that it takes
  std::string group;                 ///< heading in the help
  std::optional<std::string> usual;  ///< what holds where it is not given, in the help
  std::string variable;  ///< of the environment, that gives it where the command line does not
  Kind kind = Kind::kText;
  std::vector<std::string> words;  ///< that it takes; empty: any
  std::string other_word;          ///< that it takes beside numbers
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool is_above_least = false, is_below_most = false;
  bool is_required = false;      ///< an argument that must be given
  bool is_repeated = false;      ///< each counts; else the last
  bool is_negative = false;      ///< a switch that turns something off
  bool may_change = false;       ///< between a run and the run that resumes it
  bool is_option = false;        ///< has a value among the options
  bool is_quiet = false;         ///< left out of a file of options where it has its usual value
  bool is_for_launcher = false;  ///< taken out before a rank sees the others
  bool may_be_empty = false;     ///< as text

  bool is_argument() const { return name.front() != '-'; }
  bool is_decisive() const { return is_option && !may_change; }
  bool takes_value() const { return kind != Kind::kSwitch; }

  /// Returns the name without dashes, as a file of options has it.
  std::string key() const { return name.substr(name.find_first_not_of('-')); }

  /// Reads a number or a word. Throws InvalidArgument that begins with the verb, says what the
  /// flag takes and repeats the text.
  std::int64_t whole_number(const std::string& text,
      std::int64_t type_least = std::numeric_limits<std::int64_t>::min(),
      std::int64_t type_most = std::numeric_limits<std::int64_t>::max()) const;
  double real_number(const std::string& text) const;
  const std::string& word(const std::string& text) const;

  /// Returns what the variable gives; nothing if it is absent, or turns a switch off. An empty one
  /// is an InvalidArgument, unless the flag may be empty; so is 2 for a switch.
  std::optional<std::string> variable_text() const;

  /// Throws the same for a number that lies outside the range; accepts all other values.
  void check_range(const FlagValue& value) const;

  /// Says what the flag takes: `a number above 0`, `one of adam, sgd`.
  std::string expected() const;

  [[noreturn]] void refuse(const std::string& text) const;
};

/// Orders the flags of a command line.
using FlagSpecs = std::vector<const FlagSpec*>;

/// One flag of a command line, as it was given.
struct GivenFlag {
  const FlagSpec* spec;
  std::string value;               ///< empty for a switch
  std::vector<std::string> words;  ///< that it was written in
};

/// A command line, cut into flags and what follows them.
struct GivenFlags {
  std::vector<GivenFlag> flags;
  std::vector<std::string> program;  ///< and its arguments, of a verb that runs one
  bool asks_help = false;

  bool has(std::string_view name) const { return find(name).has_value(); }

  /// Returns the last value given, or all.
  std::optional<std::string> find(std::string_view name) const;
  std::vector<std::string> all(std::string_view name) const;

  /// Returns the words of all flags as they were given, but for those that are left out.
  template <typename IsLeftOut>
  std::vector<std::string> words_without(const IsLeftOut& is_left_out) const {
    std::vector<std::string> words;
    for (const GivenFlag& flag : flags)
      if (!is_left_out(*flag.spec)) words.insert(words.end(), flag.words.begin(), flag.words.end());
    return words;
  }
};

/// The words that may follow the flags of a verb.
enum class AfterFlags { kNothing, kProgram };

/// Finds the known flags in a command line; values are not read yet.
///
/// `--log_dir x`, `--log-dir=x`, `-t 3`, `-t3` and `-np 2` (for `--nproc-per-node`) are understood.
/// Throws InvalidArgument for a flag that is unknown, with the nearest known one, for a missing or
/// empty value, and for an argument too few or too many.
///
///     --nproc_per_node 2 ./hello --nnodes 3   // with kProgram: --nproc-per-node 2 | ./hello ...
GivenFlags parse_flags(const std::string& verb, const FlagSpecs& known,
    const std::vector<std::string>& words, AfterFlags after = AfterFlags::kNothing);

/// The texts around the flags in the help of a verb.
struct VerbText {
  std::string verb;
  std::string usage;
  std::string description;
  std::string footer;
};

/// Writes the help: usage, groups of flags with their explanation from column 34, footer.
std::string help_text(const VerbText& text, const FlagSpecs& specs);

}  // namespace lockstep
