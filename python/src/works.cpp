#include "works.h"

#include <thread>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::python {
namespace {

constexpr c10::SourceLocation kHere{"lockstep", "works.cpp", 0};

std::string shapes_of(const std::vector<at::Tensor>& tensors) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> shapes;
  for (const at::Tensor& tensor : tensors) {
    if (shapes.size() == kMost)
      return concat(joined(shapes), " and ", tensors.size() - kMost, " more");
    shapes.push_back(concat(c10::toString(tensor.scalar_type()), tensor.sizes()));
  }
  return joined(shapes);
}

}  // namespace

std::exception_ptr for_python(const std::string& what, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const TimeoutError& error) {
    return std::make_exception_ptr(c10::DistBackendError(
        kHere, concat(what, ": not done within the timeout (", error.what(), ")")));
  } catch (const CommError& error) {
    return std::make_exception_ptr(c10::DistBackendError(kHere, concat(what, ": ", error.what())));
  } catch (const InvalidArgument& error) {
    return std::make_exception_ptr(c10::ValueError(kHere, concat(what, ": ", error.what())));
  } catch (const c10::Error&) {
    return failure;
  } catch (const std::exception& error) {
    return std::make_exception_ptr(c10::Error(kHere, concat(what, ": ", error.what())));
  } catch (...) {
    return failure;
  }
}

std::string CollectiveWork::Call::describe() const {
  const std::string shapes = shapes_of(inputs);
  return concat("lockstep: group ", group, ", rank ", rank, ", ", name, " #", number,
      shapes.empty() ? "" : concat(" of ", shapes));
}

CollectiveWork::CollectiveWork(Call call)
    : Work(call.rank, call.type, call.name, call.inputs),
      call_(std::move(call)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

// Whoever waits may count on its tensors having no other owner.
std::exception_ptr CollectiveWork::carry_out(std::function<void()> body) {
  try {
    const at::NoGradGuard no_gradients;
    std::exchange(body, nullptr)();
  } catch (...) {
    return for_python(call_.describe(), std::current_exception());
  }
  return nullptr;
}

void CollectiveWork::end(const std::exception_ptr& failure) {
  call_.inputs.clear();
  if (failure) {
    future_->setError(failure);
  } else {
    future_->markCompleted(c10::IValue(call_.results));
  }
  finish(failure);
}

MessageWork::MessageWork(int rank, c10d::OpType type, std::string what, lockstep::Work work,
    const std::vector<at::Tensor>& inputs)
    : Work(rank, type, type == c10d::OpType::SEND ? "lockstep:send" : "lockstep:recv", inputs),
      what_(std::move(what)),
      work_(std::move(work)) {}

void MessageWork::end() {
  std::exception_ptr failure;
  try {
    const at::NoGradGuard no_gradients;
    work_.wait();
  } catch (...) {
    failure = for_python(what_, std::current_exception());
  }
  sender_ = work_.sender();
  finish(failure);
  has_ended_ = true;
}

bool MessageWork::isCompleted() {
  const std::unique_lock lock(moving_, std::try_to_lock);
  if (lock && !has_ended_ && work_.done()) end();
  return has_ended_;
}

bool MessageWork::isSuccess() const { return has_ended_ && exception() == nullptr; }

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (timeout != kNoTimeout && !isCompleted()) {
    if (std::chrono::steady_clock::now() > deadline)
      std::rethrow_exception(for_python(
          what_, std::make_exception_ptr(TimeoutError(concat("waited ", timeout.count(), " ms")))));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const std::lock_guard lock(moving_);
  if (!has_ended_) end();
  if (const auto failure = exception()) std::rethrow_exception(failure);
  return true;
}

int MessageWork::sourceRank() const { return has_ended_ ? sender_ : -1; }

}  // namespace lockstep::python
