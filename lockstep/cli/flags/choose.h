#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Throws InvalidArgument that lists the words a flag of `lockstep train` knows and proposes
/// the nearest.
[[noreturn]] void refuse_word(
    const std::string& flag, const std::string& word, const std::vector<std::string>& known);

/// Gives the value of that name; refuse_word() if none has it.
template <typename Value>
Value choose(const char* flag, const std::string& word, std::initializer_list<Value> values) {
  std::vector<std::string> known;
  for (const Value value : values) {
    if (word == name_of(value)) return value;
    known.emplace_back(name_of(value));
  }
  refuse_word(flag, word, known);
}

}  // namespace lockstep::cli
