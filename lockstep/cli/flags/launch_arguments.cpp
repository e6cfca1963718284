#include "lockstep/cli/flags/launch_arguments.h"

#include <algorithm>

namespace lockstep::cli {
namespace {

bool is_flag(const std::string& argument) { return argument.size() > 1 && argument[0] == '-'; }

std::string name_of(const std::string& argument) { return argument.substr(0, argument.find('=')); }

bool takes_next(const std::string& argument, const FlagNames& names) {
  return argument.find('=') == std::string::npos && names.with_value.count(argument) > 0;
}

}  // namespace

std::vector<std::string> FlagNames::all() const {
  std::vector<std::string> names(with_value.begin(), with_value.end());
  names.insert(names.end(), alone.begin(), alone.end());
  return names;
}

SplitArguments split_at_program(const std::vector<std::string>& arguments, const FlagNames& names) {
  SplitArguments split;
  auto next = arguments.begin();
  while (next != arguments.end() && is_flag(*next)) {
    if (*next == "--") {
      ++next;
      break;
    }
    split.flags.push_back(canonical_flag(*next++));
    const bool value = takes_next(split.flags.back(), names) && next != arguments.end();
    if (value) split.flags.push_back(*next++);
  }
  split.rest.assign(next, arguments.end());
  return split;
}

SplitArguments take_flags(const std::vector<std::string>& arguments, const FlagNames& names) {
  SplitArguments split;
  for (auto next = arguments.begin(); next != arguments.end();) {
    const std::string flag = canonical_flag(*next);
    const std::string name = name_of(flag);
    const bool ours = names.with_value.count(name) > 0 || names.alone.count(name) > 0;
    if (!ours) {
      split.rest.push_back(*next++);
      continue;
    }
    split.flags.push_back(flag);
    ++next;
    if (takes_next(flag, names) && next != arguments.end()) split.flags.push_back(*next++);
  }
  return split;
}

std::string canonical_flag(const std::string& argument) {
  if (name_of(argument) == "-np") return "--nproc-per-node" + argument.substr(3);
  if (argument.rfind("--", 0) != 0) return argument;
  std::string name = name_of(argument);
  std::replace(name.begin(), name.end(), '_', '-');
  return name + argument.substr(name.size());
}

}  // namespace lockstep::cli
