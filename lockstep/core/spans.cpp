#include "lockstep/core/spans.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <utility>

namespace lockstep {
namespace {

/// All threads' spans: a lane outlives its thread, for whoever takes them.
struct Lane {
  std::mutex mutex;  // threads that load images may end a span while others are taken
  SpanLane content;
};

struct Lanes {
  std::mutex mutex;
  std::vector<std::shared_ptr<Lane>> all;
};

Lanes& lanes() {
  static Lanes lanes;
  return lanes;
}

SpanRecorder::Graph& graph() {
  static SpanRecorder::Graph graph;
  return graph;
}

std::string name_of_this_thread() {
  char name[16] = {};
  return ::pthread_getname_np(::pthread_self(), name, sizeof name) == 0 ? name : "";
}

std::shared_ptr<Lane> new_lane() {
  auto lane = std::make_shared<Lane>();
  lane->content.thread = name_of_this_thread();
  lane->content.number = graph().thread ? graph().thread() : 0;
  const std::lock_guard lock(lanes().mutex);
  lanes().all.push_back(lane);
  return lane;
}

Lane& own_lane() {
  static thread_local const std::shared_ptr<Lane> kLane = new_lane();
  return *kLane;
}

}  // namespace

std::atomic<bool> SpanRecorder::recording{false};

void SpanRecorder::set_graph(const Graph& given) { graph() = given; }

std::vector<SpanLane> SpanRecorder::take() {
  const Lane* const main = &own_lane();
  const std::lock_guard lock(lanes().mutex);
  std::vector<SpanLane> taken;
  for (const auto& lane : lanes().all) {
    const std::lock_guard own(lane->mutex);
    SpanLane& content = lane->content;
    if (content.spans.empty()) continue;
    taken.push_back({content.thread, content.number, lane.get() == main,
        std::exchange(content.spans, std::vector<Span>())});
  }
  return taken;
}

std::int64_t SpanRecorder::now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

std::uint64_t SpanRecorder::next_node() { return graph().next_node ? graph().next_node() : 0; }

void SpanRecorder::add(Span span) {
  Lane& lane = own_lane();
  const std::lock_guard lock(lane.mutex);
  lane.content.spans.push_back(std::move(span));
}

void SpanScope::begin(Activity activity, std::string_view name) {
  activity_ = activity;
  name_ = name;
  first_node_ = SpanRecorder::next_node();
  begin_ = SpanRecorder::now();
}

void SpanScope::end() {
  const std::int64_t now = SpanRecorder::now();
  SpanRecorder::add({.name = std::string(name_),
      .activity = activity_,
      .begin = begin_,
      .end = now,
      .first_node = first_node_,
      .end_node = SpanRecorder::next_node()});
}

}  // namespace lockstep
