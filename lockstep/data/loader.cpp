#include "lockstep/data/loader.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/data/device_images.h"
#include "lockstep/data/image_samples.h"

namespace lockstep {
namespace {

void check_options(const LoaderOptions& options) {
  check(options.dtype == torch::kFloat || options.dtype == torch::kBFloat16,
      "Loader: the type must be float or bf16: ", options.dtype);
  check(options.workers >= 0, "Loader: workers must not be negative: ", options.workers);
  check(options.prefetch > 0, "Loader: prefetch must be positive: ", options.prefetch);
}

}  // namespace

namespace data {

BatchQueue::BatchQueue(Prepare prepare, const Bounds& bounds)
    : prepare_(std::move(prepare)),
      bounds_(bounds),
      slots_(static_cast<std::size_t>(bounds.ahead)),
      begun_(bounds.first),
      taken_(bounds.first) {
  check(bounds.workers > 0, "BatchQueue: there must be a worker: ", bounds.workers);
  try {
    for (int i = 0; i < bounds.workers; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    stop();  // The destructor does not run: the threads that are there must not outlive this.
    throw;
  }
}

BatchQueue::~BatchQueue() { stop(); }

void BatchQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BatchQueue::next(Batch& batch) {
  std::exception_ptr error;
  {
    std::unique_lock lock(mutex_);
    check(taken_ < bounds_.end, "BatchQueue: there is no further batch");
    Slot& slot = slot_of(taken_);
    prepared_.wait(lock, [&] { return slot.ready; });
    std::swap(slot.batch, batch);
    error = std::exchange(slot.error, nullptr);
    slot.ready = false;
    ++taken_;
  }
  room_.notify_all();
  if (error) std::rethrow_exception(error);
}

void BatchQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    room_.wait(lock, [this] { return stopped_ || begun_ == bounds_.end || may_begin(); });
    if (stopped_ || begun_ == bounds_.end) return;
    const std::int64_t number = begun_++;
    Slot& slot = slot_of(number);
    lock.unlock();
    try {
      prepare_(slot.batch, number);
    } catch (...) {
      slot.error = std::current_exception();
    }
    lock.lock();
    slot.ready = true;
    prepared_.notify_one();
  }
}

// A slot is free again when the batch before in it has been taken.
bool BatchQueue::may_begin() const { return begun_ < taken_ + std::ssize(slots_); }

BatchQueue::Slot& BatchQueue::slot_of(std::int64_t number) {
  return slots_[static_cast<std::size_t>(number) % slots_.size()];
}

}  // namespace data

Loader::Loader(data::SamplesPointer samples, std::vector<std::int64_t> indices,
    std::int64_t batch_size, const LoaderOptions& options)
    : samples_(std::move(samples)),
      indices_(std::move(indices)),
      batch_size_(batch_size),
      options_(options),
      form_(data::form_of(*samples_)) {
  form_.dtype = options.dtype;
  form_.pinned = options.pinned;
  form_.channels_last = options.channels_last;
  check(batch_size > 0, "Loader: the batch size must be positive: ", batch_size);
  check_options(options);
  check(0 <= options.first_batch && options.first_batch <= size(),
      "Loader: the first batch must be one of ", size(), ": ", options.first_batch);
}

Loader::Loader(data::InMemoryImages images, std::vector<std::int64_t> indices,
    std::int64_t batch_size, const LoaderOptions& options)
    : Loader(std::make_shared<data::StoredSamples>(std::move(images), options.normalization),
          std::move(indices), batch_size, options) {}

std::int64_t Loader::size() const {
  const std::int64_t full = std::ssize(indices_) / batch_size_;
  const bool has_rest = !options_.drop_last && std::ssize(indices_) % batch_size_ != 0;
  return full + (has_rest ? 1 : 0);
}

Loader::Iterator Loader::begin() const { return Iterator(*this); }

std::span<const std::int64_t> Loader::indices_of(std::int64_t batch) const {
  const std::int64_t start = batch * batch_size_;
  const std::int64_t count = std::min(batch_size_, std::ssize(indices_) - start);
  return std::span(indices_).subspan(
      static_cast<std::size_t>(start), static_cast<std::size_t>(count));
}

Batch Loader::batch_on_device(std::int64_t number) const {
  std::vector<std::int64_t> stored;
  for (const std::int64_t index : indices_of(number)) {
    data::check_index(index, samples_->size());
    stored.push_back(samples_->stored(index).index);
  }
  return options_.resident->batch(stored, options_.dtype, options_.channels_last);
}

// Whatever was drawn: a walk that goes on in the middle has the same batch.
Batch Loader::constant_batch(std::int64_t number) const {
  std::vector<data::SampleKey> keys;
  for (std::int64_t i = 0; i < std::ssize(indices_of(number)); ++i) keys.push_back({.index = i});
  Batch batch = data::empty_batch(std::ssize(keys), form_);
  samples_->read(keys, batch);
  return batch.map([this](const torch::Tensor& own) { return own.to(options_.device); });
}

void Loader::read_into(Batch& batch, std::int64_t number) const {
  if (options_.resident) {
    batch = batch_on_device(number);
    return;
  }
  const auto indices = indices_of(number);
  if (samples_->is_constant()) {
    const bool is_there = !batch.is_empty() && batch.size() == std::ssize(indices);
    if (!is_there) batch = constant_batch(number);
    return;
  }
  if (!data::can_be_reused(batch, std::ssize(indices), form_)) {
    batch = data::empty_batch(std::ssize(indices), form_);
  }
  std::vector<data::SampleKey> keys;
  keys.reserve(indices.size());
  for (const std::int64_t index : indices) keys.push_back({options_.seed, options_.epoch, index});
  samples_->read(keys, batch);
}

Loader::Iterator::Iterator(const Loader& loader)
    : loader_(&loader), number_(loader.options_.first_batch) {
  const LoaderOptions& options = loader.options_;
  if (*this == std::default_sentinel) return;
  if (options.workers > 0 && !options.resident && !loader.samples_->is_constant()) {
    queue_ = std::make_unique<data::BatchQueue>(
        [&loader](Batch& batch, std::int64_t number) { loader.read_into(batch, number); },
        data::BatchQueue::Bounds{
            number_, loader.size(), options.workers, options.workers * options.prefetch});
  }
  fetch();
}

Loader::Iterator& Loader::Iterator::operator++() {
  ++number_;
  if (*this != std::default_sentinel) fetch();
  return *this;
}

// Other holders of a batch are detected here, in the thread that handed it out.
void Loader::Iterator::fetch() {
  if (!queue_) return loader_->read_into(batch_, number_);
  if (!data::is_held_by_nobody_else(batch_)) batch_ = {};
  queue_->next(batch_);
}

}  // namespace lockstep
