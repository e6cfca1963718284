#pragma once

#include <cstdint>
#include <lockstep/lockstep.h>
#include <map>
#include <sstream>
#include <string>
#include <vector>

/// The `--name value` pairs of a command line; a missing flag keeps its default.
class Flags {
 public:
  Flags(int argc, char** argv, std::map<std::string, std::string> defaults)
      : values_(std::move(defaults)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      lockstep::check(name.starts_with("--") && values_.contains(name.substr(2)) && i + 1 < argc,
          "cannot read ", name, "; the flags with their defaults are", listed());
      values_[name.substr(2)] = argv[i + 1];
    }
  }

  const std::string& text(const std::string& name) const { return values_.at(name); }

  std::int64_t number(const std::string& name, std::int64_t least = 1) const {
    return numbers(name, least).front();
  }

  /// Reads whole numbers separated by commas, each at least `least`.
  std::vector<std::int64_t> numbers(const std::string& name, std::int64_t least = 1) const {
    std::vector<std::int64_t> numbers;
    std::istringstream list(text(name));
    for (std::string word; std::getline(list, word, ',');) {
      std::istringstream stream(word);
      std::int64_t number = 0;
      stream >> number;
      lockstep::check(
          stream && stream.eof() && number >= least, "--", name, ": not a number: ", word);
      numbers.push_back(number);
    }
    lockstep::check(!numbers.empty(), "--", name, " needs a number");
    return numbers;
  }

 private:
  std::string listed() const {
    std::string list;
    for (const auto& [name, value] : values_) list += " --" + name + " " + value;
    return list;
  }

  std::map<std::string, std::string> values_;
};
