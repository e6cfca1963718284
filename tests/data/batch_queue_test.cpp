#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/data/loader.h"

namespace lockstep::data {
namespace {

Batch numbered(std::int64_t number) { return {torch::full({1}, number), torch::full({1}, number)}; }

void expect_numbers(BatchQueue& queue, std::int64_t first, std::int64_t end) {
  Batch batch;
  for (std::int64_t number = first; number < end; ++number) {
    queue.next(batch);
    EXPECT_EQ(batch.target().item<std::int64_t>(), number);
  }
}

// The first of each pair is the slow one, so that workers overtake each other.
void prepare_unevenly(Batch& batch, std::int64_t number) {
  if (number % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  batch = numbered(number);
}

TEST(BatchQueue, HandsOutInOrderWhoeverPrepares) {
  for (const int workers : {1, 2, 5}) {
    for (const std::int64_t ahead : {1, 2, 7}) {
      BatchQueue queue(
          prepare_unevenly, {.first = 3, .end = 20, .workers = workers, .ahead = ahead});
      expect_numbers(queue, 3, 20);
    }
  }
}

TEST(BatchQueue, PreparesNoMoreThanItMay) {
  std::atomic<std::int64_t> begun = 0, taken = 0;
  std::atomic<bool> within = true;
  {
    BatchQueue queue(
        [&](Batch& batch, std::int64_t number) {
          if (++begun > taken + 3) within = false;
          batch = numbered(number);
        },
        {.end = 100, .workers = 4, .ahead = 3});
    Batch batch;
    for (int i = 0; i < 10; ++i) {
      ++taken;  // Before the call: the slot is free from within it.
      queue.next(batch);
    }
    while (begun < 13) std::this_thread::yield();
  }
  EXPECT_TRUE(within);
  EXPECT_EQ(begun, 13);
}

TEST(BatchQueue, ThrowsWhatAPreparationThrewWhenItsTurnComes) {
  BatchQueue queue(
      [](Batch& batch, std::int64_t number) {
        if (number == 2) throw std::out_of_range("the third");
        batch = numbered(number);
      },
      {.end = 8, .workers = 2, .ahead = 2});
  expect_numbers(queue, 0, 2);
  Batch batch;
  EXPECT_THROW(queue.next(batch), std::out_of_range);
  expect_numbers(queue, 3, 8);
  EXPECT_THROW(queue.next(batch), InvalidArgument);
}

TEST(BatchQueue, UsesTheMemoryThatComesBack) {
  std::mutex mutex;
  std::set<const void*> memory;
  BatchQueue queue(
      [&](Batch& batch, std::int64_t number) {
        if (!batch.target().defined()) batch = numbered(number);
        batch.target().fill_(number);
        const std::lock_guard lock(mutex);
        memory.insert(batch.target().data_ptr());
      },
      {.end = 50, .workers = 2, .ahead = 4});
  expect_numbers(queue, 0, 50);
  // One for each slot, and the one that the caller holds.
  EXPECT_LE(memory.size(), 5U);
}

TEST(BatchQueue, EndsWithBatchesLeftAndWorkersWaiting) {
  std::atomic<int> inside = 0;
  for (int i = 0; i < 20; ++i) {
    BatchQueue queue(
        [&](Batch& batch, std::int64_t number) {
          ++inside;
          prepare_unevenly(batch, number);
          --inside;
        },
        {.end = 1000, .workers = 3, .ahead = 6});
    if (i % 2 == 0) expect_numbers(queue, 0, 2);
  }
  EXPECT_EQ(inside, 0);
}

TEST(BatchQueue, RefusesToHaveNoWorker) {
  EXPECT_THROW(BatchQueue(prepare_unevenly, {.end = 1, .workers = 0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
