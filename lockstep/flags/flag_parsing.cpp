// The half of flag_spec.h that cuts command lines.

#include <algorithm>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/flags/flag_spec.h"

namespace lockstep {
namespace {

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

GivenFlags parse_flags(
    const std::string& verb, const FlagSpecs& known, const Words& words, AfterFlags after) {
  return CommandLine(verb, known, words).parse(after);
}

}  // namespace lockstep
