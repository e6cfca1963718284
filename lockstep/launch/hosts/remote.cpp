#include "lockstep/launch/hosts/remote.h"

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

std::string shell_word(const std::string& word) {
  std::string inner;
  for (const char letter : word) {
    if (letter == '\'') {
      inner.append("'\\''");
    } else {
      inner.push_back(letter);
    }
  }
  return concat("'", inner, "'");
}

}  // namespace

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line.push_back(' ');
    line.append(shell_word(word));
  }
  return line;
}

std::string remote_line(
    const std::string& folder, const std::vector<std::string>& variables,
    const std::vector<std::string>& command) {
  const std::string script = concat(
      "cd ", shell_words({folder}), " || exit 4\n", "exec 3<&0\n", "env ", shell_words(variables),
      " ", shell_words(command), " 3<&- </dev/null &\n", "child=$!\n",
      "{ cat <&3; kill -TERM $child; sleep 30; kill -KILL $child; } >/dev/null 2>&1 &\n",
      "watch=$!\n", "wait $child\n", "code=$?\n", "kill $watch\n", "exit $code\n");
  // The user's own shell there may be of any kind.
  return shell_words({"sh", "-c", script});
}

}  // namespace lockstep::launch
