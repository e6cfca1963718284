#include "lockstep/snapshot/group_values.h"

#include <cerrno>
#include <chrono>
#include <gtest/gtest.h>
#include <system_error>
#include <thread>

#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include <ATen/ops/zeros.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

template <typename Exception>
void expect_everywhere(const Exception& error) {
  run_ranks(3, [&](const ProcessGroup& world) {
    int calls = 0;
    const auto work = [&] {
      ++calls;
      throw Exception(error);
    };
    EXPECT_EQ(testing::message_of<Exception>([&] { do_on_root(work, world); }), error.what());
    EXPECT_EQ(calls, world.rank() == 0 ? 1 : 0);
  });
}

TEST(DoOnRoot, WhatItThrowsIsThrownOnAllRanks) {
  expect_everywhere(InvalidArgument("a flag: --lr 2"));
  expect_everywhere(DataError("a file: line 3"));
  expect_everywhere(Error(""));
  expect_everywhere(std::system_error(ENOSPC, std::generic_category(), "write a file"));
  run_ranks(2, [](const ProcessGroup& world) {
    int calls = 0;
    do_on_root([&] { ++calls; }, world);
    EXPECT_EQ(calls, world.rank() == 0 ? 1 : 0);
  });
}

void work_long_on(int rank, const ProcessGroup& world) {
  if (world.rank() == rank) std::this_thread::sleep_for(std::chrono::seconds(5));
}

// Over gloo the ranks are processes, and their sockets give up.
TEST(WorkPatiently, MayTakeLongerThanACollective) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    world.set_timeout(std::chrono::seconds(2));
    work_patiently([&] { work_long_on(1, world); }, world);
    do_on_root([&] { work_long_on(0, world); }, world);
    world.barrier().wait();
  });
}

TEST(WorkPatiently, ThrowsAtOnceWhatItThrows) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    const auto work = [&] {
      if (world.rank() == 1) throw DataError("unreadable");
      work_long_on(0, world);
    };
    if (world.rank() == 1)
      EXPECT_THROW(work_patiently(work, world), DataError);
    else
      EXPECT_NO_THROW(work_patiently(work, world));
  });
}

// The rest wait in calls of another group, which would wait without end.
TEST(WorkPatiently, FindsThatARankIsLost) {
  testing::run_ranks(2, [](const ProcessGroup& world) {
    const ProcessGroup files = world.split(0, world.rank());
    world.set_timeout(std::chrono::seconds(2));
    files.set_timeout(std::chrono::hours(1));
    if (world.rank() == 1) return world.abort("gone");
    const auto receive = [&] { files.recv(at::zeros({1}), 1).wait(); };
    EXPECT_THROW(work_patiently(receive, world, &files), CommError);
  });
}

}  // namespace
}  // namespace lockstep
