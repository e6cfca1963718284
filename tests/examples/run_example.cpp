#include "run_example.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sys/wait.h>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

Ended run_line(const std::string& line) {
  const TemporaryFolder folder;
  const std::string script = folder.path() / "line.sh";
  std::ofstream(script) << "PATH=\"" << std::getenv("LOCKSTEP_BINARY_DIR") << ":$PATH\"\n" << line;
  Ended ended;
  FILE* const pipe = ::popen(("timeout 120 sh " + script + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer;
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) ended.output += buffer.data();
  ended.status = WEXITSTATUS(::pclose(pipe));
  return ended;
}

std::vector<double> numbers_in(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<double> numbers;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    numbers.push_back(std::stod((*match)[1]));
  return numbers;
}

}  // namespace lockstep::testing
