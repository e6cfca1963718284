// NCCL's calls end, whatever the other ranks do: on emulated streams, where it connects ranks by
// their first call, as on GPUs.

#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <stdexcept>
#include <thread>

#include "tests/accelerator/emulated_nccl.h"
#include "tests/accelerator/runtime.h"
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

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
class ChangedNccl {
 public:
  ChangedNccl() : before(nccl::api()), now(before) { nccl::use_api(&now); }

 private:
  UseEmulatedNccl nccl_;

 public:
  const nccl::Api before;
  nccl::Api now;
};

torch::Device own_device(const ProcessGroup& world) {
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(world.rank())};
}

at::Tensor numbers_of(const ProcessGroup& world, double value) {
  return at::full({100}, value, at::TensorOptions(torch::kFloat).device(own_device(world)));
}

// A ring has no end where somebody receives first.
TEST(NcclConnections, RanksThatAllSendFirstDoNotWaitForEachOther) {
  install();
  const UseEmulatedNccl nccl;
  for (const int ranks : {2, 3, 4}) {
    run_ranks(ranks, [&](const ProcessGroup& world) {
      const ProcessGroup group = world.with_device(own_device(world));
      const int next = (world.rank() + 1) % ranks, before = (world.rank() + ranks - 1) % ranks;
      const at::Tensor received = numbers_of(world, -1);
      Work sending = group.send(numbers_of(world, world.rank()), next);
      group.recv(received, before).wait();
      sending.wait();
      EXPECT_EQ(received.mean().item<double>(), before);
    });
  }
}

TEST(NcclConnections, AFirstCallThatNobodyMeetsTimesOut) {
  install();
  const UseEmulatedNccl nccl;
  run_ranks(2, [](const ProcessGroup& world) {
    world.set_timeout(kShort);
    const ProcessGroup group = world.with_device(own_device(world));
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
TEST(NcclConnections, AnotherThreadMayAbortACallThatWaits) {
  install();
  const UseEmulatedNccl nccl;
  run_ranks(2, [](const ProcessGroup& world) {
    const ProcessGroup group = world.with_device(own_device(world));
    if (world.rank() == 0) {
      Work first = group.send(numbers_of(world, 1), 1);
      const std::jthread other([&] {
        std::this_thread::sleep_for(kShort);
        group.abort("the other thread has seen enough");
      });
      EXPECT_THAT([&] { group.send(numbers_of(world, 2), 1).wait(); },
          ThrowsMessage<CommError>(HasSubstr("the other thread has seen enough")));
    }
  });
}

TEST(NcclConnections, ARankThatDoesNotJoinIsWaitedForOnlySoLong) {
  install();
  ChangedNccl nccl;
  static const nccl::Api* before;
  before = &nccl.before;
  nccl.now.init_rank = [](Communicator** made, int ranks, UniqueId id, int rank, Config* config) {
    return rank == 1 ? Result{2} : before->init_rank(made, ranks, id, rank, config);
  };
  run_ranks(2, [](const ProcessGroup& world) {
    world.set_timeout(kShort);
    const auto connect = [&] { (void)world.with_device(own_device(world)); };
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
TEST(NcclConnections, WhatAFirstCallReadsMayBeGivenAwayBeforeTheOthersCome) {
  install();
  const UseEmulatedNccl nccl;
  run_ranks(2, [](const ProcessGroup& world) {
    const ProcessGroup group = world.with_device(own_device(world));
    const at::Tensor all = at::zeros({200}, own_device(world));
    Work work = group.all_gather(all, numbers_of(world, 7));
    Runtime::get().finish(own_device(world).index());
    const at::Tensor next = numbers_of(world, 99);  // where the input was, if it is free
    world.barrier().wait();
    work.wait();
    EXPECT_TRUE(all.cpu().eq(7).all().item<bool>());
  });
}

TEST(NcclWatchdog, ADeviceThatFailsEndsTheGroupAndNotTheProcess) {
  install();
  ChangedNccl nccl;
  static std::atomic<bool> is_broken;
  static const nccl::Api* before;
  is_broken = false;
  before = &nccl.before;
  nccl.now.async_error = [](Communicator* own, Result* error) {
    if (is_broken) throw std::runtime_error("an illegal address");
    return before->async_error(own, error);
  };
  run_ranks(2, [](const ProcessGroup& world) {
    const ProcessGroup group = world.with_device(own_device(world));
    const at::Tensor tensor = numbers_of(world, 1);
    group.all_reduce(tensor).wait();
    world.barrier().wait();
    is_broken = true;
    std::this_thread::sleep_for(2 * kShort);
    world.barrier().wait();
    is_broken = false;
    EXPECT_THAT([&] { group.all_reduce(tensor).wait(); },
        ThrowsMessage<CommError>(HasSubstr(" failed: an illegal address")));
  });
}

std::atomic<int> left, given_up;

// Who gives up takes away what the other ranks may still read.
void count_ends(ChangedNccl& nccl) {
  static const nccl::Api* before;
  before = &nccl.before;
  left = given_up = 0;
  nccl.now.destroy = [](Communicator* own) { return ++left, before->destroy(own); };
  nccl.now.abort = [](Communicator* own) { return ++given_up, before->abort(own); };
}

TEST(NcclEnds, ALastCallMayStillBeReadByOthersSoNothingIsAborted) {
  install();
  ChangedNccl nccl;
  count_ends(nccl);
  run_ranks(2, [](const ProcessGroup& world) {
    const ProcessGroup group = world.with_device(own_device(world));
    group.all_reduce(numbers_of(world, 1)).wait();
  });
  EXPECT_EQ(given_up, 0);
  EXPECT_EQ(left, 6) << "three communicators of each rank";
}

TEST(NcclEnds, AGroupThatFailedIsAborted) {
  install();
  ChangedNccl nccl;
  count_ends(nccl);
  run_ranks(2, [](const ProcessGroup& world) {
    const ProcessGroup group = world.with_device(own_device(world));
    group.abort("enough");
  });
  EXPECT_EQ(given_up, 6);
  EXPECT_EQ(left, 0);
}

}  // namespace
}  // namespace lockstep::emulated
