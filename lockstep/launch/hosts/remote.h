#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// Sets words so that a shell gives them back unchanged.
std::string shell_words(const std::vector<std::string>& words);

/// Gives what a shell on another host is to run: the command in that folder, with those variables
/// (NAME=VALUE). It is ended there, by SIGTERM and half a minute later by SIGKILL, when the
/// standard input of that shell ends, as it does when ssh is killed here.
std::string remote_line(
    const std::string& folder, const std::vector<std::string>& variables,
    const std::vector<std::string>& command);

}  // namespace lockstep::launch
