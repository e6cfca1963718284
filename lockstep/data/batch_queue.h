#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::data {

/// A queue of numbered batches that threads prepare, a bounded number ahead, and that are handed
/// out in order.
///
/// Which thread prepares a batch depends on chance; what is in it must not. The memory that next()
/// takes back serves a later batch.
class BatchQueue {
 public:
  /// A function that fills a batch, using its memory if that fits. Called from several threads.
  using Prepare = std::function<void(Batch& batch, std::int64_t number)>;

  struct Bounds {
    std::int64_t first = 0;  ///< number of the first batch
    std::int64_t end = 0;    ///< number after the last one
    int workers = 1;
    std::int64_t ahead = 2;  ///< batches that are prepared or being prepared, at most
  };

  BatchQueue(Prepare prepare, const Bounds& bounds);

  /// Waits for the batches being prepared and drops all.
  ~BatchQueue();
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  /// Exchanges a batch that is no longer needed for the next one; waits until it is there.
  ///
  /// Throws what its preparation threw. Must not be called more often than there are batches.
  void next(Batch& batch);

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
    bool ready = false;
  };

  void work();
  bool may_begin() const;
  Slot& slot_of(std::int64_t number);
  void stop();

  Prepare prepare_;
  Bounds bounds_;
  std::vector<Slot> slots_;
  std::int64_t begun_;
  std::int64_t taken_;
  bool stopped_ = false;
  std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable prepared_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::data
