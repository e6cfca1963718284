#include "lockstep/snapshot/background_thread.h"

#include <csignal>
#include <ctime>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

namespace lockstep {
namespace {

// On a core that also trains this leaves the thread about a tenth of the time: a step is hardly
// longer, and a job that may take a hundredth of the time of training is soon done all the same.
constexpr int kNice = 10;

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Linux keeps niceness and policy of each thread by itself; a batch thread that is woken does not
// push aside the one that woke it. If Linux refuses, the job only disturbs more.
void give_way() {
  ::pthread_setname_np(::pthread_self(), "snapshot");
  const sched_param no_priority{};
  ::sched_setscheduler(0, SCHED_BATCH, &no_priority);
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

// A file that grows too large is a failure of its write, also where the program has not said so.
void block_file_size_signal() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

BackgroundThread::~BackgroundThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// The thread first: where none can be begun, nobody must wait for a job.
void BackgroundThread::start(std::function<void()> job) {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    job_ = std::move(job);
    failure_ = nullptr;
  }
  changed_.notify_all();
}

bool BackgroundThread::is_busy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return job_ != nullptr;
}

void BackgroundThread::wait_for(std::chrono::milliseconds most) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, most, [this] { return job_ == nullptr; });
}

void BackgroundThread::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return job_ == nullptr; });
}

std::exception_ptr BackgroundThread::take_failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(failure_, nullptr);
}

double BackgroundThread::job_seconds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return job_seconds_;
}

void BackgroundThread::run() {
  give_way();
  block_file_size_signal();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return job_ != nullptr || ends_; });
    if (job_ == nullptr) return;
    do_job(lock);
    changed_.notify_all();
  }
}

void BackgroundThread::do_job(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const double before = thread_seconds();
  std::exception_ptr failure;
  try {
    job_();
  } catch (...) {
    failure = std::current_exception();
  }
  const double seconds = thread_seconds() - before;
  lock.lock();
  job_ = nullptr;
  failure_ = failure;
  job_seconds_ = seconds;
}

}  // namespace lockstep
