// NCCL's calls end, whatever the other ranks do: on emulated streams, where it connects ranks by
// their first call, as on GPUs.

#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <stdexcept>
#include <thread>

#include "tests/accelerator/ways/on_devices.h"

#include "lockstep/comm/device/nccl_api.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep::emulated {
namespace {

using nccl::Communicator, nccl::Config, nccl::Result, nccl::UniqueId;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr auto kShort = std::chrono::milliseconds(300);

/// NCCL on the emulated streams, with functions that a test may change.
class NcclOfTests : public ::testing::Test {
 protected:
  NcclOfTests() {
    install();
    nccl::use_api(&functions_);
  }

  UseEmulatedNccl nccl_;
  nccl::Api functions_ = kNcclFunctions;
};

using NcclConnections = NcclOfTests;
using NcclWatchdog = NcclOfTests;

at::Tensor numbers_of(const ProcessGroup& group, double value) {
  return filled(device_of(group), value, 100);
}

// A ring has no end where somebody receives first.
TEST_F(NcclConnections, RanksThatAllSendFirstDoNotWaitForEachOther) {
  for (const int ranks : {2, 3, 4}) {
    on_devices(ranks, [&](const ProcessGroup& group) {
      const int next = (group.rank() + 1) % ranks, before = (group.rank() + ranks - 1) % ranks;
      const at::Tensor received = numbers_of(group, -1);
      Work sending = group.send(numbers_of(group, group.rank()), next);
      group.recv(received, before).wait();
      sending.wait();
      EXPECT_EQ(received.mean().item<double>(), before);
    });
  }
}

TEST_F(NcclConnections, AFirstCallThatNobodyMeetsTimesOut) {
  run_ranks(2, [](const ProcessGroup& world) {
    world.set_timeout(kShort);
    const ProcessGroup group = world.with_device(device_of(world));
    world.set_timeout(std::chrono::minutes(1));
    if (world.rank() == 0) {
      Work sending = group.send(numbers_of(world, 1), 1);
      EXPECT_THAT([&] { sending.wait(); },
          ThrowsMessage<TimeoutError>(HasSubstr("send on emulated:0 timed out after 0.3 s")));
    }
    world.barrier().wait();
  });
}

// The second call waits for the first one, and so would what ends it, if it took the same lock.
TEST_F(NcclConnections, AnotherThreadMayAbortACallThatWaits) {
  on_devices(2, [](const ProcessGroup& group) {
    if (group.rank() == 0) {
      Work first = group.send(numbers_of(group, 1), 1);
      const std::jthread other([&] {
        std::this_thread::sleep_for(kShort);
        group.abort("the other thread has seen enough");
      });
      EXPECT_THAT([&] { group.send(numbers_of(group, 2), 1).wait(); },
          ThrowsMessage<CommError>(HasSubstr("the other thread has seen enough")));
    }
  });
}

TEST_F(NcclConnections, ARankThatDoesNotJoinIsWaitedForOnlySoLong) {
  functions_.init_rank = [](Communicator** made, int ranks, UniqueId id, int rank, Config* config) {
    return rank == 1 ? Result{2} : kNcclFunctions.init_rank(made, ranks, id, rank, config);
  };
  run_ranks(2, [](const ProcessGroup& world) {
    world.set_timeout(kShort);
    const auto connect = [&] { (void)world.with_device(device_of(world)); };
    if (world.rank() == 0) {
      EXPECT_THAT(connect,
          ThrowsMessage<TimeoutError>(AllOf(HasSubstr("rank 0 of 2 on emulated:0 could not join"),
              HasSubstr("in 0.3 s; one is missing"))));
    } else {
      EXPECT_THROW(connect(), CommError);
    }
  });
}

// As if the others came much later: until then no kernel of NCCL's is there that the memory waits
// for.
TEST_F(NcclConnections, WhatAFirstCallReadsMayBeGivenAwayBeforeTheOthersCome) {
  on_devices(2, [](const ProcessGroup& group) {
    const at::Tensor all = filled(device_of(group), 0, 200);
    Work work = group.all_gather(all, numbers_of(group, 7));
    Runtime::get().finish(device_of(group).index());
    const at::Tensor next = numbers_of(group, 99);  // where the input was, if it is free
    group.barrier().wait();
    work.wait();
    EXPECT_TRUE(all.cpu().eq(7).all().item<bool>());
  });
}

TEST_F(NcclWatchdog, ADeviceThatFailsEndsTheGroupAndNotTheProcess) {
  static std::atomic<bool> is_broken;
  is_broken = false;
  functions_.async_error = [](Communicator* own, Result* error) {
    if (is_broken) throw std::runtime_error("an illegal address");
    return kNcclFunctions.async_error(own, error);
  };
  on_devices(2, [](const ProcessGroup& group) {
    const at::Tensor tensor = numbers_of(group, 1);
    group.all_reduce(tensor).wait();
    group.barrier().wait();
    is_broken = true;
    std::this_thread::sleep_for(2 * kShort);
    group.barrier().wait();
    is_broken = false;
    EXPECT_THAT([&] { group.all_reduce(tensor).wait(); },
        ThrowsMessage<CommError>(HasSubstr(" failed: an illegal address")));
  });
}

std::atomic<int> left, given_up;

// Who gives up takes away what the other ranks may still read.
class NcclEnds : public NcclOfTests {
 protected:
  NcclEnds() {
    left = given_up = 0;
    functions_.destroy = [](Communicator* own) { return ++left, kNcclFunctions.destroy(own); };
    functions_.abort = [](Communicator* own) { return ++given_up, kNcclFunctions.abort(own); };
  }
};

TEST_F(NcclEnds, ALastCallMayStillBeReadByOthersSoNothingIsAborted) {
  on_devices(2, [](const ProcessGroup& group) { group.all_reduce(numbers_of(group, 1)).wait(); });
  EXPECT_EQ(given_up, 0);
  EXPECT_EQ(left, 6) << "three communicators of each rank";
}

TEST_F(NcclEnds, AGroupThatFailedIsAborted) {
  on_devices(2, [](const ProcessGroup& group) { group.abort("enough"); });
  EXPECT_EQ(given_up, 6);
  EXPECT_EQ(left, 0);
}

}  // namespace
}  // namespace lockstep::emulated
