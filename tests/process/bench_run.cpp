#include "tests/process/bench_run.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::testing {
namespace {

constexpr auto kHangGuard = std::chrono::minutes(8);

void redirect(const std::string& path, int descriptor) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(126);
}

std::string program() {
  const char* folder = std::getenv("LOCKSTEP_BINARY_DIR");
  if (folder == nullptr)
    throw std::runtime_error("LOCKSTEP_BINARY_DIR must name the programs' folder");
  return std::string(folder) + "/lockstep";
}

}  // namespace

BenchRun::BenchRun(const std::string& folder, const std::vector<std::string>& arguments)
    : folder_(folder) {
  std::vector<std::string> words = {program()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ > 0) return;
  redirect(folder_ + "/stdout", STDOUT_FILENO);
  redirect(folder_ + "/stderr", STDERR_FILENO);
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

BenchRun::~BenchRun() {
  if (has_ended()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool BenchRun::has_ended() {
  int status = 0;
  if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    pid_ = -1;
  }
  return pid_ < 0;
}

void BenchRun::wait_until(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kHangGuard;
  while (!holds()) {
    const bool in_vain = has_ended() || std::chrono::steady_clock::now() > deadline;
    if (in_vain) {
      ADD_FAILURE() << "it did not come to that; it said: " << contents(folder_ + "/stderr");
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Ended BenchRun::wait() {
  const auto deadline = std::chrono::steady_clock::now() + kHangGuard;
  while (!has_ended() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (pid_ > 0) ADD_FAILURE() << "it did not end; it said: " << contents(folder_ + "/stderr");
  return {
      .code = code_, .out = contents(folder_ + "/stdout"), .err = contents(folder_ + "/stderr")};
}

}  // namespace lockstep::testing
