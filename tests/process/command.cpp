#include "tests/process/command.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

// A test may itself run under a launcher; the command must not take that one's ranks for its own.
bool names_a_rank(const std::string& variable) {
  for (const char* name : {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE="}) {
    if (variable.starts_with(name)) return true;
  }
  return false;
}

launch::ChildOptions options_for(
    Words arguments, const Words& variables, const std::string& program) {
  launch::ChildOptions options;
  options.program = program.empty() ? built_lockstep() : program;
  options.arguments = std::move(arguments);
  options.environment = launch::current_environment();
  std::erase_if(options.environment, names_a_rank);
  options.environment.insert(options.environment.end(), variables.begin(), variables.end());
  return options;
}

bool append(FileDescriptor& pipe, std::string& text) {
  char bytes[1 << 16];
  const ssize_t size = ::read(pipe.get(), bytes, sizeof(bytes));
  if (size == 0) pipe.reset();
  if (size > 0) text.append(bytes, static_cast<std::size_t>(size));
  return size > 0;
}

std::vector<pid_t> processes_whose(const std::string& file, const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto process = parse_number<int>(entry.path().filename().string());
    if (!process || *process == ::getpid()) continue;
    if (contents_so_far(entry.path() / file).find(text) != std::string::npos)
      found.push_back(*process);
  }
  return found;
}

}  // namespace

Ended Ended::with_code(int expected, const char* file, int line) && {
  if (code() != expected)
    ADD_FAILURE_AT(file, line) << "code " << code() << ", not " << expected << ": " << out << err;
  return std::move(*this);
}

Command::Command(Words arguments, const Words& variables, const std::string& program)
    : process_(options_for(std::move(arguments), variables, program)),
      out_pipe_(process_.take_output()),
      err_pipe_(process_.take_errors()) {}

void Command::signal(int signal) const { ::kill(pid(), signal); }

bool Command::read(int milliseconds) {
  pollfd waited[] = {{out_pipe_.get(), POLLIN, 0}, {err_pipe_.get(), POLLIN, 0}};
  ::poll(waited, 2, milliseconds);
  const bool out = append(out_pipe_, out_), err = append(err_pipe_, err_);
  return out || err;
}

bool Command::meets(const std::function<bool()>& holds) {
  const auto end = Clock::now() + kGuard;
  while (!holds()) {
    if ((process_.status() && !holds()) || Clock::now() > end) return false;
    read(1);
  }
  return true;
}

bool Command::wait_until(const std::function<bool()>& holds) {
  if (meets(holds)) return true;
  while (read(5)) {
  }
  ADD_FAILURE() << "what the test waits for did not happen; it printed: " << out_ << err_;
  return false;
}

std::string Command::wait_for_lines(std::ptrdiff_t lines) {
  wait_until([&] { return std::count(out_.begin(), out_.end(), '\n') >= lines; });
  return out_;
}

Ended Command::wait() {
  const auto end = Clock::now() + kGuard;
  while (!process_.status() && Clock::now() < end) read(5);
  const auto status = process_.status();
  while (read(5)) {
  }
  if (!status) ADD_FAILURE() << "lockstep did not end; it printed: " << out_ << err_;
  return {status.value_or(launch::ExitStatus{.code = -1}), out_, err_};
}

Ended run_command(const Words& arguments, const Words& variables, const std::string& program) {
  return Command(arguments, variables, program).wait();
}

Ended train(const std::string& flags) { return run_command(words("train " + flags)); }

Words shell_ranks(const std::string& script, const std::string& flags, const std::string& ranks) {
  Words all = words("run --nproc-per-node " + ranks + " " + flags + " --");
  all.insert(all.end(), {"sh", "-c", script});
  return all;
}

Ended run_through_shell(
    const std::string& redirections, const Words& arguments, const std::string& before) {
  Words all = {"-c", before + "exec \"$0\" \"$@\" " + redirections, built_lockstep()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command(all, {}, "/bin/bash");
}

std::string built_lockstep() {
  const auto folder = environment("LOCKSTEP_BINARY_DIR");
  if (!folder) throw std::runtime_error("LOCKSTEP_BINARY_DIR must name the folder of lockstep");
  return *folder + "/lockstep";
}

bool is_running(pid_t pid) {
  const std::string text = contents_so_far("/proc/" + std::to_string(pid) + "/stat");
  const auto state = text.rfind(')');
  return state != std::string::npos && text.at(state + 2) != 'Z' && text.at(state + 2) != 'X';
}

bool eventually(const std::function<bool()>& condition) {
  const auto end = Clock::now() + kGuard;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool all_end(const std::vector<pid_t>& pids) {
  return eventually([&] { return std::none_of(pids.begin(), pids.end(), is_running); });
}

std::vector<pid_t> processes_with(const std::string& text) {
  return processes_whose("cmdline", text);
}

std::vector<pid_t> processes_with_variable(const std::string& text) {
  return processes_whose("environ", text);
}

std::string variable_of(pid_t process, const std::string& name) {
  const std::string all = contents_so_far("/proc/" + std::to_string(process) + "/environ");
  for (const std::string& variable : split(all, '\0')) {
    if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
  }
  return "";
}

std::vector<pid_t> numbers_after(const std::string& word, const std::string& text) {
  std::vector<pid_t> numbers;
  std::istringstream found(text);
  for (std::string each; found >> each;) {
    pid_t number = 0;
    if (each == word && found >> number) numbers.push_back(number);
  }
  return numbers;
}

std::ptrdiff_t count_of(const std::string& what, const std::string& text) {
  std::ptrdiff_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

}  // namespace lockstep::testing
