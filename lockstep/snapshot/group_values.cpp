#include "lockstep/snapshot/group_values.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"

namespace lockstep {
namespace {

torch::Tensor bytes_of(const std::string& text) {
  torch::Tensor bytes = at::empty({std::ssize(text)}, on_host(torch::kByte));
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const torch::Tensor& bytes) {
  return {
      static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())};
}

torch::Tensor size_of(const std::string& text) {
  return at::full({1}, std::ssize(text), on_host(torch::kLong));
}

// What the exception is, as the exit code that stands for it, its errno, and its text.
std::string note_of(const std::exception& error) {
  const auto kind = static_cast<int>(exit_code_of(error));
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system == nullptr) return concat(kind, " 0 ", error.what());
  const std::error_code& code = system->code();
  return concat(kind, ' ', code.value(), ' ', without_reason(error.what(), code));
}

[[noreturn]] void throw_noted(const std::string& note) {
  const std::size_t kind_end = note.find(' '), code_end = note.find(' ', kind_end + 1);
  const auto kind = static_cast<ExitCode>(parse_number<int>(note.substr(0, kind_end)).value_or(1));
  const auto code = note.substr(kind_end + 1, code_end - kind_end - 1);
  const std::string text = note.substr(code_end + 1);
  if (kind == ExitCode::kUsage) throw InvalidArgument(text);
  if (kind == ExitCode::kData) throw DataError(text);
  if (kind == ExitCode::kEnvironment)
    throw std::system_error(parse_number<int>(code).value_or(EIO), std::generic_category(), text);
  throw Error(text);
}

}  // namespace

std::string without_reason(std::string text, const std::error_code& code) {
  const std::string reason = ": " + code.message();
  if (text.ends_with(reason)) text.resize(text.size() - reason.size());
  return text;
}

void maximize(std::initializer_list<double*> numbers, const ProcessGroup& group) {
  if (group.size() == 1) return;
  const torch::Tensor all = at::empty({std::ssize(numbers)}, on_host(torch::kDouble));
  auto* place = all.mutable_data_ptr<double>();
  for (const double* number : numbers) *place++ = *number;
  group.all_reduce(all, ReduceOp::kMax).wait();
  const auto* agreed = all.const_data_ptr<double>();
  for (double* number : numbers) *number = *agreed++;
}

std::string broadcast_text(const std::string& text, int root, const ProcessGroup& group) {
  const torch::Tensor size = size_of(text);
  group.broadcast(size, root).wait();
  if (size.item<std::int64_t>() == 0) return {};
  const torch::Tensor bytes = group.rank() == root
                                  ? bytes_of(text)
                                  : at::empty({size.item<std::int64_t>()}, on_host(torch::kByte));
  group.broadcast(bytes, root).wait();
  return text_of(bytes);
}

std::vector<std::string> gather_texts(
    const std::string& text, int root, const ProcessGroup& group) {
  const torch::Tensor sizes = at::empty({group.size()}, on_host(torch::kLong));
  group.all_gather(sizes, size_of(text)).wait();
  std::vector<std::string> texts;
  if (group.rank() != root) {
    if (!text.empty()) group.send(bytes_of(text), root).wait();
    return texts;
  }
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto size = sizes[rank].item<std::int64_t>();
    if (rank == root || size == 0) {
      texts.push_back(rank == root ? text : "");
      continue;
    }
    const torch::Tensor bytes = at::empty({size}, on_host(torch::kByte));
    group.recv(bytes, rank).wait();
    texts.push_back(text_of(bytes));
  }
  return texts;
}

std::vector<std::string> all_texts(const std::string& text, const ProcessGroup& group) {
  const torch::Tensor sizes = at::empty({group.size()}, on_host(torch::kLong));
  group.all_gather(sizes, size_of(text)).wait();
  std::string all;
  for (const std::string& one : gather_texts(text, 0, group)) all += one;
  all = broadcast_text(all, 0, group);
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto size = static_cast<std::size_t>(sizes[rank].item<std::int64_t>());
    texts.push_back(all.substr(begin, size));
    begin += size;
  }
  return texts;
}

namespace {

/// The meetings of a rank with the others while its work is under way, in a thread of their own.
class Meetings {
 public:
  explicit Meetings(ProcessGroup group, const ProcessGroup* used)
      : group_(std::move(group)), used_(used), thread_([this] { run(); }) {}

  /// Tells that the work is done or `has_failed`, and returns once it is done everywhere, or has
  /// failed anywhere; or a rank is lost, which is what this returns.
  std::exception_ptr end(bool has_failed) {
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
      has_failed_ = has_failed;
    }
    changed_.notify_one();
    thread_.join();
    return lost_;
  }

 private:
  void run() {
    try {
      // Short at first: most work is.
      for (std::chrono::milliseconds pause(1); meet(pause); pause = std::min(2 * pause, kLongest)) {
      }
    } catch (const std::exception& error) {
      lost_ = std::current_exception();
      if (used_ != nullptr) used_->abort(error.what());
    }
  }

  bool meet(std::chrono::milliseconds pause) {
    double busy = 0, failed = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, pause, [this] { return is_done_; });
      busy = is_done_ ? 0 : 1;
      failed = has_failed_ ? 1 : 0;
    }
    maximize({&busy, &failed}, group_);
    return busy > 0 && failed == 0;
  }

  static constexpr std::chrono::milliseconds kLongest{100};

  ProcessGroup group_;
  const ProcessGroup* used_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false, has_failed_ = false;
  std::exception_ptr lost_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

void work_patiently(
    const std::function<void()>& work, const ProcessGroup& group, const ProcessGroup* used) {
  if (group.size() == 1) return work();
  Meetings meetings(group, used);
  try {
    work();
  } catch (...) {
    meetings.end(true);
    throw;
  }
  if (const auto lost = meetings.end(false)) std::rethrow_exception(lost);
}

std::string failures_of(
    const std::function<void()>& work, const ProcessGroup& group, const ProcessGroup* used) {
  std::string own;
  const auto noted_work = [&] {
    try {
      work();
    } catch (const std::exception& error) {
      own = concat("host ", host_name(), ": ", error.what());
    }
  };
  work_patiently(noted_work, group, used);
  std::vector<std::string> failures;
  for (std::string& text : all_texts(own, group))
    if (!text.empty()) failures.push_back(std::move(text));
  return joined(failures, "; ");
}

void do_on_root(const std::function<void()>& work, const ProcessGroup& group) {
  std::exception_ptr failure;
  std::string note;
  const auto work_of_root = [&] {
    if (group.rank() != 0) return;
    try {
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      note = note_of(error);
    }
  };
  work_patiently(work_of_root, group);
  note = broadcast_text(note, 0, group);
  if (failure) std::rethrow_exception(failure);
  if (!note.empty()) throw_noted(note);
}

}  // namespace lockstep
