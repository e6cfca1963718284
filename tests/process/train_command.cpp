#include "tests/process/train_command.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

constexpr auto kHangGuard = std::chrono::minutes(2);

std::string program() {
  const char* folder = std::getenv("LOCKSTEP_BINARY_DIR");
  if (folder == nullptr)
    throw std::runtime_error("LOCKSTEP_BINARY_DIR must name the programs' folder");
  return std::string(folder) + "/lockstep";
}

void redirect(const std::string& path, int descriptor) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
}

// A test may itself run under a launcher; the command must not take that one's ranks for its own.
void forget_ranks() {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    ::unsetenv(name);
}

}  // namespace

TrainCommand::TrainCommand(const std::string& folder, const std::vector<std::string>& arguments)
    : folder_(folder) {
  std::vector<std::string> words = {program(), "train"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ > 0) return;
  redirect(out_path(), STDOUT_FILENO);
  redirect(err_path(), STDERR_FILENO);
  forget_ranks();
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

TrainCommand::~TrainCommand() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<int> TrainCommand::wait_until(std::chrono::steady_clock::time_point deadline) {
  while (std::chrono::steady_clock::now() < deadline) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return std::nullopt;
}

Ended TrainCommand::wait() {
  const auto code = wait_until(std::chrono::steady_clock::now() + kHangGuard);
  if (!code) ADD_FAILURE() << "lockstep train did not end; it said: " << contents(err_path());
  return {.code = code.value_or(-1), .out = contents(out_path()), .err = contents(err_path())};
}

Ended train(const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  return TrainCommand(folder.str(), arguments).wait();
}

std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t process = std::stoi(name);
    if (process == ::getpid()) continue;
    if (contents(entry.path() / "cmdline").find(text) != std::string::npos)
      found.push_back(process);
  }
  return found;
}

std::string variable_of(pid_t process, const std::string& name) {
  const std::string all = '\0' + contents("/proc/" + std::to_string(process) + "/environ");
  const std::string start = '\0' + name + "=";
  const auto at = all.find(start);
  if (at == std::string::npos) return "";
  const auto from = at + start.size();
  return all.substr(from, all.find('\0', from) - from);
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace lockstep::testing
