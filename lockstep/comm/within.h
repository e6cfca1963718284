#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace lockstep {

/// Returns what a call returns, or throws what it throws, or returns nothing after `limit`: then
/// its thread stays behind, so the call must own all that it uses. For calls into LibTorch and the
/// system that may wait without end.
template <typename Call>
auto within(std::chrono::milliseconds limit, Call call)
    -> std::optional<std::invoke_result_t<Call>> {
  using Result = std::invoke_result_t<Call>;
  auto task = std::make_shared<std::packaged_task<Result()>>(std::move(call));
  std::future<Result> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

}  // namespace lockstep
