#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

/// Does one job at a time in a thread of its own, which gives way to those that compute.
///
/// The thread begins with the first job and has the cores of the thread that gave it.
class BackgroundThread {
 public:
  BackgroundThread() = default;
  BackgroundThread(const BackgroundThread&) = delete;
  BackgroundThread& operator=(const BackgroundThread&) = delete;

  /// Waits for the job under way.
  ~BackgroundThread();

  /// Begins a job; the one before must be done. Throws std::system_error when there can be no
  /// thread: then there is no job.
  void start(std::function<void()> job);

  bool is_busy() const;

  /// Waits until the job is done, but no longer than this.
  void wait_for(std::chrono::milliseconds most);

  /// Waits until the job is done.
  void wait();

  /// Returns what the last job threw, once; null if it threw nothing. Only while none is under way.
  std::exception_ptr take_failure();

  /// Returns the processor time of the last job. Only while none is under way.
  double job_seconds() const;

 private:
  void run();
  void do_job(std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;  // empty: nothing to do
  std::exception_ptr failure_;
  double job_seconds_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace lockstep
