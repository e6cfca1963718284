#include "launcher_run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/launch/worker_environment.h"

namespace lockstep::testing {
namespace {

constexpr auto kHang = std::chrono::seconds(60);

launch::ChildOptions options_for(
    std::vector<std::string> arguments, const std::vector<std::string>& variables,
    const std::string& program) {
  launch::ChildOptions options;
  options.program = program.empty() ? built_launcher() : program;
  options.arguments = std::move(arguments);
  options.environment = launch::current_environment();
  options.environment.insert(options.environment.end(), variables.begin(), variables.end());
  return options;
}

void append(const FileDescriptor& pipe, std::string& text) {
  char bytes[1 << 16];
  const ssize_t size = ::read(pipe.get(), bytes, sizeof(bytes));
  if (size > 0) text.append(bytes, static_cast<std::size_t>(size));
}

}  // namespace

LauncherRun::LauncherRun(
    std::vector<std::string> arguments, const std::vector<std::string>& variables,
    const std::string& program)
    : process_(options_for(std::move(arguments), variables, program)),
      output_pipe_(process_.take_output()),
      errors_pipe_(process_.take_errors()) {}

void LauncherRun::signal(int signal) const { ::kill(pid(), signal); }

void LauncherRun::read(int milliseconds) {
  pollfd waited[] = {{output_pipe_.get(), POLLIN, 0}, {errors_pipe_.get(), POLLIN, 0}};
  ::poll(waited, 2, milliseconds);
  append(output_pipe_, output_);
  append(errors_pipe_, errors_);
}

std::string LauncherRun::wait_for_lines(std::size_t lines) {
  const auto end = std::chrono::steady_clock::now() + kHang;
  const auto found = [&] { return std::count(output_.begin(), output_.end(), '\n'); };
  while (static_cast<std::size_t>(found()) < lines && std::chrono::steady_clock::now() < end) {
    read(20);
  }
  return output_;
}

Finished LauncherRun::finish() {
  const auto end = std::chrono::steady_clock::now() + kHang;
  while (!process_.status() && std::chrono::steady_clock::now() < end) read(5);
  const auto status = process_.status();
  if (!status) throw std::runtime_error("lockstep did not end; it said: " + output_ + errors_);
  std::size_t before = 0;
  do {
    before = output_.size() + errors_.size();
    read(5);
  } while (before != output_.size() + errors_.size());
  return {*status, output_, errors_};
}

Finished run_launcher(
    const std::vector<std::string>& arguments, const std::vector<std::string>& variables,
    const std::string& program) {
  return LauncherRun(arguments, variables, program).finish();
}

std::string built_launcher() {
  const auto folder = environment("LOCKSTEP_BINARY_DIR");
  if (!folder) throw std::runtime_error("LOCKSTEP_BINARY_DIR must name the folder of lockstep");
  return *folder + "/lockstep";
}

bool is_running(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const auto state = text.rfind(')');
  return text.at(state + 2) != 'Z' && text.at(state + 2) != 'X';
}

bool all_end(const std::vector<pid_t>& pids) {
  const auto end = std::chrono::steady_clock::now() + kHang;
  while (std::any_of(pids.begin(), pids.end(), is_running)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::vector<pid_t> numbers_after(const std::string& word, const std::string& text) {
  std::vector<pid_t> numbers;
  std::istringstream words(text);
  for (std::string found; words >> found;) {
    pid_t number = 0;
    if (found == word && words >> number) numbers.push_back(number);
  }
  return numbers;
}

TemporaryFolder::TemporaryFolder()
    : path_(std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) throw_errno("make a folder", path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> TemporaryFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string TemporaryFolder::text_of(const std::string& name) const {
  std::ifstream file(path(name));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace lockstep::testing
