#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/batch.h"
#include "lockstep/data/pixels/pixel_scale.h"
#include "lockstep/data/samples.h"

namespace lockstep {

namespace data {

class DeviceImages;

/// A queue of numbered batches that threads prepare, a bounded number ahead, and that are handed
/// out in order.
///
/// Any thread may prepare a batch, so its content must not depend on the thread. The memory of a
/// batch that next() takes back is reused for a later one.
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

}  // namespace data

/// Options of a Loader: its batches, and the threads that prepare them.
struct LoaderOptions {
  torch::ScalarType dtype = torch::kFloat;  ///< or kBFloat16
  bool drop_last = false;                   ///< leave out a last batch that is not full
  data::Normalization normalization = {};   ///< of images in memory that have no transform
  std::uint64_t seed = 0;                   ///< of what transforms draw
  std::int64_t epoch = 0;                   ///< of what transforms draw
  std::int64_t first_batch = 0;             ///< where to go on: so many batches have been seen
  int workers = 0;                          ///< threads that prepare batches; 0: the caller's
  std::int64_t prefetch = 2;                ///< batches ahead, for each worker
  bool pinned = false;                      ///< page-locked memory, for copies to an accelerator
  bool channels_last = false;  ///< images lie as NHWC, which convolutions on a CPU take fastest
  torch::Device device = torch::kCPU;  ///< where the one batch of a constant set is kept
  /// The set on a device, which makes the batches there, in the caller's thread; null: on the host.
  std::shared_ptr<const data::DeviceImages> resident = nullptr;
};

/// A walk over a data set in batches, read in the caller's thread or ahead of it in others.
///
/// Images have the shape [batch, channels, height, width] and lie in memory in that order, as those
/// of LibTorch's own data sets do, unless `channels_last` asks for the other one. Where a set names
/// its inputs, they have the shapes that it says, and float ones the type asked for; targets have
/// the shapes and types that the set says.
///
/// The batches are the same whatever the number of workers. The memory of a batch is used again for
/// a later one unless someone still holds it or a view of it. A set that is constant has one batch,
/// which is made once and handed out every time: nobody may write into it.
///
///     for (auto& batch : lockstep::Loader(digits, sampler.epoch(epoch), 64)) train(batch.input(),
///     batch.target());
class Loader {
 public:
  class Iterator;

  /// An index outside of the data set is an InvalidArgument when its batch is read, a sample whose
  /// bytes are bad a DataError that names it: both when the batch's turn comes.
  Loader(data::SamplesPointer samples, std::vector<std::int64_t> indices, std::int64_t batch_size,
      const LoaderOptions& options = {});

  /// Takes images in memory as they are.
  Loader(data::InMemoryImages images, std::vector<std::int64_t> indices, std::int64_t batch_size,
      const LoaderOptions& options = {});

  /// Counts the batches of the whole walk, those before `first_batch` included.
  std::int64_t size() const;

  /// Begins a walk, at `first_batch`. Each walk has workers of its own, which end with it.
  Iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  std::span<const std::int64_t> indices_of(std::int64_t batch) const;
  void read_into(Batch& batch, std::int64_t number) const;
  Batch batch_on_device(std::int64_t number) const;
  Batch constant_batch(std::int64_t number) const;

  data::SamplesPointer samples_;
  std::vector<std::int64_t> indices_;
  std::int64_t batch_size_;
  LoaderOptions options_;
  data::BatchForm form_;
};

/// A place in the batches of a Loader, which must outlive it; holds the current one.
class Loader::Iterator {
 public:
  using difference_type = std::int64_t;
  using value_type = Batch;

  explicit Iterator(const Loader& loader);

  Batch& operator*() { return batch_; }
  Batch* operator->() { return &batch_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return number_ == loader_->size(); }

  /// Counts the batches before the current one: a Loader whose `first_batch` is this begins with
  /// it.
  std::int64_t position() const { return number_; }

 private:
  void fetch();

  const Loader* loader_;
  std::int64_t number_;
  Batch batch_;
  std::unique_ptr<data::BatchQueue> queue_;
};

}  // namespace lockstep
