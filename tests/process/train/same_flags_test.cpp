// Starts the ranks of one run with different flags, in every way of starting ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/command.h"
#include "tests/process/train/idx_files.h"

#include "lockstep/net/endpoint.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Pair {
  Ended first, second;
};

class SameFlags : public ::testing::TestWithParam<std::string> {
 protected:
  std::string flags(int rank) const {
    return "train --model mnist-small --epochs 1 --batch-size 16 " + data_.flag() + " --output " +
           folder_.file("run-" + std::to_string(rank)) + " ";
  }

  // Each rank by itself, as torchrun, srun or mpirun starts it.
  Pair by_variables(const std::string& first, const std::string& second) const {
    const net::ReservedPort reserved;
    const std::string port = "MASTER_PORT=" + std::to_string(reserved.number());
    const auto start = [&](int rank, const std::string& more) {
      return Command(words(flags(rank) + more),
          {"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
              "MASTER_ADDR=127.0.0.1", port});
    };
    Command one = start(0, first), other = start(1, second);
    return {one.wait(), other.wait()};
  }

  // Two launchers of one rank each.
  Pair by_nodes(const std::string& first, const std::string& second) const {
    const net::ReservedPort reserved;
    const std::string port = std::to_string(reserved.number());
    const auto start = [&](int rank, const std::string& more) {
      return Command(words("run --nnodes 2 --nproc-per-node 1 --node-rank " + std::to_string(rank) +
                           " --master-addr 127.0.0.1 --master-port " + port + " -- " +
                           built_lockstep() + " " + flags(rank) + more));
    };
    Command one = start(0, first), other = start(1, second);
    return {one.wait(), other.wait()};
  }

  IdxFiles data_{64, 32};
  TemporaryFolder folder_;
};

void expect_refusal(const Pair& ended, const std::string& name) {
  for (const Ended& each : {ended.first, ended.second}) {
    EXPECT_EQ(each.code(), 2) << each.err;
    EXPECT_THAT(each.err, AllOf(HasSubstr("different flags"), HasSubstr(name + ": "),
                              HasSubstr(" on rank 0, "), HasSubstr(" on rank 1")));
  }
}

TEST_P(SameFlags, ADifferenceIsNamedAtTheStart) {
  const std::string& more = GetParam();
  const std::string name = more.substr(0, more.find(' '));
  expect_refusal(by_variables("", more), name);
}

INSTANTIATE_TEST_SUITE_P(Each, SameFlags,
    ::testing::Values("--batch-size 8", "--seed 7", "--smoothing 0.1", "--precision auto",
        "--grad-accum-steps 2", "--augment crop-flip", "--lr 0.5", "--opt sgd", "--clip-grad 1",
        "--max-steps 2", "--val-interval 0", "--resume auto", "--parallel pp"));

TEST_F(SameFlags, ADifferenceBetweenLaunchersIsNamedToo) {
  expect_refusal(by_nodes("--batch-size 8", ""), "--batch-size");
}

TEST_F(SameFlags, WhatEachRankMayHaveOfItsOwnMayDiffer) {
  const Pair ended = by_variables("--workers 1 --json", "--progress none --workers 0");
  EXPECT_EQ(ended.first.code(), 0) << ended.first.err;
  EXPECT_EQ(ended.second.code(), 0) << ended.second.err;
}

TEST_F(SameFlags, DifferentDataIsNamedAtTheStart) {
  const IdxFiles other(80, 32);
  const Pair ended = by_variables("", other.flag());
  for (const Ended& each : {ended.first, ended.second}) {
    EXPECT_EQ(each.code(), 2) << each.err;
    EXPECT_THAT(each.err, AllOf(HasSubstr("the ranks read different data"),
                              HasSubstr("training samples: 64 on rank 0, 80 on rank 1")));
  }
}

TEST_F(SameFlags, DifferentBackendsAreNamedAtTheStart) {
  const Pair ended = by_variables("", "--backend gloo");
  for (const Ended& each : {ended.first, ended.second}) {
    EXPECT_EQ(each.code(), 2) << each.err;
    EXPECT_THAT(each.err, HasSubstr("different backends: auto on rank 0, gloo on rank 1"));
  }
}

}  // namespace
}  // namespace lockstep::testing
