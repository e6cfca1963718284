#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace lockstep::testing {

/// Is how a command ended.
struct Ended {
  int code = 0;  ///< as a shell tells it: 128+n for the signal n
  std::string out;
  std::string err;
};

/// Runs `lockstep` as a person would, and ends it with all its ranks when a test gives up on it.
class TrainCommand {
 public:
  /// Starts `lockstep train ARGUMENTS`; what it says goes to files in the folder.
  TrainCommand(const std::string& folder, const std::vector<std::string>& arguments);
  TrainCommand(const TrainCommand&) = delete;
  TrainCommand& operator=(const TrainCommand&) = delete;
  ~TrainCommand();

  /// Waits for the end; after two minutes it is killed and a test failure recorded.
  Ended wait();

  pid_t pid() const { return pid_; }
  std::string out_path() const { return folder_ + "/stdout"; }
  std::string err_path() const { return folder_ + "/stderr"; }

 private:
  std::optional<int> wait_until(std::chrono::steady_clock::time_point deadline);

  std::string folder_;
  pid_t pid_ = -1;
};

/// Runs `lockstep train ARGUMENTS` to its end.
Ended train(const std::vector<std::string>& arguments);

/// Finds the running processes whose command line holds this text, the test itself left out.
std::vector<pid_t> processes_with(const std::string& text);

/// Reads a variable of another process's environment; empty when it has none.
std::string variable_of(pid_t process, const std::string& name);

/// Reads a whole file.
std::string contents(const std::string& path);

/// Waits for the condition; after two minutes, which are a guard against waiting for ever, it is
/// false.
template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lockstep::testing
