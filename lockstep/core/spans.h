#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The kind of work that a thread does for a while.
enum class Activity {
  kStep,           ///< a whole step of training
  kInput,          ///< waits for the next batch, or makes it
  kCopy,           ///< brings the batch to where it is needed
  kForward,        ///< of the model, or of one micro-batch in a stage
  kBackward,       ///< the same
  kStages,         ///< waits for the stages of a pipeline, which other threads compute
  kCommunication,  ///< begins, carries forward and waits for a collective
  kIdle,           ///< a stage waits for what another one computes
  kOptimizer,
  kLayer,         ///< the forward of a layer
  kOperator,      ///< an operator of LibTorch, or one of ours that says so
  kGradientNode,  ///< the backward of an operator
  kReduction      ///< gradients are on their way, whatever the thread does meanwhile
};

/// A stretch of a thread's time, and its use.
struct Span {
  std::string name;
  Activity activity = Activity::kStep;
  std::int64_t begin = 0, end = 0;  ///< nanoseconds of the monotonic clock
  /// The nodes of autograd's graph that this thread made meanwhile; of a kGradientNode the node,
  /// and the thread that made it.
  std::uint64_t first_node = 0, end_node = 0, maker = 0;
  std::string layer = {};  ///< whose parameters an operator read; empty: it is not known
  double flops = 0;        ///< of an operator, with those of its backward
};

/// The spans of one thread, in the order in which they ended.
struct SpanLane {
  std::string thread;        ///< its name
  std::uint64_t number = 0;  ///< by which nodes name their maker
  bool is_main = false;      ///< it is the one that takes the spans
  std::vector<Span> spans;
};

/// The record of what the threads of this process do, for a profile. While it is off, a SpanScope
/// costs one branch.
class SpanRecorder {
 public:
  /// The ways to tell autograd's graphs apart; null: there are none.
  struct Graph {
    std::uint64_t (*thread)() = nullptr;     ///< the number of the calling thread
    std::uint64_t (*next_node)() = nullptr;  ///< that of the node which it will make next
  };

  /// Sets where spans find their nodes; before the first start.
  static void set_graph(const Graph& graph);

  static bool is_on() { return recording.load(std::memory_order_acquire); }
  static void start() { recording.store(true, std::memory_order_release); }
  static void stop() { recording.store(false, std::memory_order_release); }

  /// Returns what was recorded and forgets it.
  static std::vector<SpanLane> take();

  static std::int64_t now();
  static std::uint64_t next_node();

  /// Adds a span to the calling thread.
  static void add(Span span);

 private:
  static std::atomic<bool> recording;
};

/// The span of its own life.
///
///     const SpanScope span(Activity::kOptimizer, "optimizer");
class SpanScope {
 public:
  SpanScope(Activity activity, std::string_view name) {
    if (SpanRecorder::is_on()) begin(activity, name);
  }
  ~SpanScope() {
    if (begin_ != 0) end();
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  void begin(Activity activity, std::string_view name);
  void end();

  Activity activity_ = Activity::kStep;
  std::string_view name_;
  std::int64_t begin_ = 0;
  std::uint64_t first_node_ = 0;
};

}  // namespace lockstep
