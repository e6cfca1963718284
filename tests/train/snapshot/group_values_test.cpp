#include "lockstep/train/snapshot/group_values.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <system_error>

#include "tests/support/message_of.h"

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

}  // namespace
}  // namespace lockstep
