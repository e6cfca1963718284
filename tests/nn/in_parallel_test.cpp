#include "lockstep/nn/in_parallel.h"

#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

namespace lockstep::nn {
namespace {

class InParallel : public ::testing::Test {
 protected:
  InParallel() { at::set_num_threads(3); }
  ~InParallel() override { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

TEST_F(InParallel, UsesAllThreadsForEachIndexOnce) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::vector<int> visits(7);
  in_parallel(7, [&](Range range) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    for (std::int64_t index = range.begin; index < range.end; ++index)
      ++visits.at(static_cast<std::size_t>(index));
  });
  EXPECT_EQ(threads.size(), 3U);
  EXPECT_EQ(visits, std::vector<int>(7, 1));
}

TEST_F(InParallel, IsSerialInsideOfAnother) {
  in_parallel(3, [](Range) {
    const auto self = std::this_thread::get_id();
    in_parallel(5, [&](Range range) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(range.end - range.begin, 5);
    });
  });
}

TEST_F(InParallel, HandlesNothingAndOne) {
  int calls = 0;
  in_parallel(0, [&](Range) { ++calls; });
  EXPECT_EQ(calls, 0);
  in_parallel(1, [&](Range range) { calls += range.begin == 0 && range.end == 1; });
  EXPECT_EQ(calls, 1);
}

TEST_F(InParallel, PassesOnWhatIsThrown) {
  EXPECT_THROW(in_parallel(3, [](Range) { throw std::runtime_error("x"); }), std::runtime_error);
}

}  // namespace
}  // namespace lockstep::nn
