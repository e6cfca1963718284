#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <variant>

namespace lockstep::emulated {

// Note [Emulated accelerator]
// A device for tests, registered as LibTorch's PrivateUse1, that makes mistakes visible which a CPU
// forgives and a GPU punishes now and then:
//
// * Its memory has two addresses. The one that tensors have cannot be read or written at all, so
//   host code that touches it gets a fault; the device's own kernels use the other.
// * Work is queued on streams and runs as late as it can: when somebody waits, only that runs which
//   the waiter needs, and what another stream does without an event between them has not happened
//   yet. With a seed other than 0, other streams run ahead at random instead: the same every time
//   for the same seed, as long as one thread queues.
// * A kernel knows addresses, not tensors. Memory that was freed too early has been given to
//   someone else, and new memory holds NaN, by the time it runs.
// * Copies from and to pinned memory are late, too, so that a buffer which is used again early
//   shows.
// * A test may make events late: a thread that waits for one then lets another wait first, so that
//   what other streams were given is done before.
//
// What the host waited for, and what was copied where, is counted. Operators are LibTorch's for the
// CPU. Each process has devices of its own; Note [Emulated NCCL] says how it carries data between
// them.

/// A point in a stream's work: reached when the stream has done this many pieces.
struct Mark {
  std::size_t stream = 0;
  std::int64_t position = 0;
};

/// The counts since they were last taken.
struct Counts {
  std::int64_t kernels = 0;
  std::int64_t host_waits = 0;  ///< for streams, events and values
  std::int64_t copies_to_device = 0;
  std::int64_t copies_to_host = 0;
  std::int64_t copies_between_devices = 0;
  std::int64_t copies_on_device = 0;
};

/// Queues of work that runs when it is waited for. All functions may be called from all threads.
class Streams {
 public:
  using Task = std::function<void()>;

  /// Makes a stream and returns its number.
  std::size_t make();

  /// Makes a stream that other threads give work until they close it, and returns its end. Who
  /// needs that waits for them.
  Mark make_open();
  void close(std::size_t stream);

  /// Queues work on a stream. Tasks must not call back.
  void enqueue(std::size_t stream, Task task);

  /// Marks the end of what is queued now.
  Mark mark(std::size_t stream);

  /// Holds back what is queued on the stream from now on, until the mark is reached.
  void wait(std::size_t stream, Mark mark);

  /// Says whether a mark was reached, and runs nothing.
  bool is_reached(Mark mark);

  /// Does one piece of what the mark needs, then says whether it was reached: so that a loop on a
  /// query ends.
  bool query(Mark mark);

  /// Runs what the mark needs, but for what another thread must give or close first.
  void advance(Mark mark);

  /// Runs what the mark needs, and returns when it was reached. Throws what a task has thrown.
  void finish(Mark mark);

  /// Counts the pieces that are queued and not done yet.
  std::size_t left();

  /// 0: as late as can be. Otherwise other streams run ahead at random.
  void set_seed(std::uint64_t seed);

 private:
  using Piece = std::variant<Task, Mark>;
  struct Queue {
    std::deque<Piece> pieces = {};
    std::int64_t done = 0;
    std::int64_t queued = 0;
    bool is_closed = false;
  };

  bool reached(Mark mark) const;
  bool is_ready(const Queue& queue) const;
  std::optional<std::size_t> needed_first(Mark mark);
  void run_ahead();
  void step(std::size_t stream);
  void check_alive() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queue> queues_;
  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
  std::exception_ptr error_;
};

}  // namespace lockstep::emulated
