// Collectives of tensors on an accelerator: by way of the host, and by NCCL on emulated streams.

#include <chrono>
#include <cstdlib>
#include <gmock/gmock.h>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/accelerator/ways/on_devices.h"
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/optim/clip_grad_norm.h"

namespace lockstep::emulated {
namespace {

using ::testing::HasSubstr;

class DeviceCollectives : public OverEngines {
 protected:
  // Until the ranks have connected, NCCL's call keeps its tensors itself.
  void let_begin(Work& work, const ProcessGroup& group) const {
    if (!nccl_) return;
    group.barrier().wait();
    (void)work.done();
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, DeviceCollectives, kEngines, name_of_engine);

TEST_P(DeviceCollectives, AllReduceTakesWhatTheStreamComputesFirst) {
  on_devices(3, [](const ProcessGroup& group) {
    at::Tensor tensor = filled(device_of(group), group.rank());
    tensor.add_(1);
    Work work = group.all_reduce(tensor);
    work.wait();
    tensor.mul_(2);
    EXPECT_THAT(values_of(tensor), ::testing::Each(12));
  });
}

TEST_P(DeviceCollectives, WhatIsReadMayBeGivenAwayAtOnce) {
  on_devices(2, [this](const ProcessGroup& group) {
    const at::Tensor all = at::zeros({2000}, device_of(group));
    Work work = group.all_gather(all, filled(device_of(group), 7));
    let_begin(work, group);
    const at::Tensor next = filled(device_of(group), 99);  // where the input was, if it is free
    work.wait();
    EXPECT_THAT(values_of(all), ::testing::Each(7));
  });
}

TEST_P(DeviceCollectives, WhatIsWrittenMayBeGivenAwayAtOnce) {
  on_devices(2, [this](const ProcessGroup& group) {
    Work work = group.all_gather(at::zeros({2000}, device_of(group)), filled(device_of(group), 7));
    let_begin(work, group);
    const at::Tensor next =
        filled(device_of(group), 99, 2000);  // where the output was, if it is free
    work.wait();
    EXPECT_THAT(values_of(next), ::testing::Each(99));
  });
}

TEST_P(DeviceCollectives, TensorsOfTheHostGoBesideThem) {
  on_devices(2, [](const ProcessGroup& group) {
    const at::Tensor device = filled(device_of(group), 1), host = at::full({5}, 2.0F);
    Work first = group.rank() == 0 ? group.all_reduce(device) : group.all_reduce(host);
    Work second = group.rank() == 0 ? group.all_reduce(host) : group.all_reduce(device);
    second.wait();
    first.wait();
    EXPECT_THAT(values_of(device), ::testing::Each(2));
    EXPECT_THAT(values_of(host), ::testing::Each(4));
    EXPECT_EQ(group.backend_name(), "threads");
    EXPECT_EQ(group.device_backend_name(), GetParam());
  });
}

// Of norms 3 and 4 on two ranks it is 5.
TEST_P(DeviceCollectives, GradientsAreClippedByTheNormOverAllRanks) {
  on_devices(2, [](const ProcessGroup& group) {
    at::Tensor parameter = filled(device_of(group), 0, 1);
    parameter.mutable_grad() = filled(device_of(group), 3 + group.rank(), 1);
    clip_gradients({parameter}, 1, group, device_of(group));
    EXPECT_NEAR(values_of(parameter.grad()).front(), (3 + group.rank()) / 5.0, 1e-5);
  });
}

TEST_P(DeviceCollectives, MessagesInBothDirectionsPass) {
  on_devices(2, [](const ProcessGroup& group) {
    const int other = 1 - group.rank();
    constexpr std::int64_t kMany = std::int64_t{12} << 20;  // more than a rank may leave waiting
    const at::Tensor sent = filled(device_of(group), group.rank(), kMany),
                     received = filled(device_of(group), 9, kMany);
    Work sending = group.send(sent, other);
    group.recv(received, other).wait();
    sending.wait();
    EXPECT_EQ(received.mean().item<double>(), other);
  });
}

TEST(StagedCollectives, AFailureOfAnotherRankReachesWhoWaits) {
  install();
  const auto body = [](const ProcessGroup& group) {
    if (group.rank() == 1) throw InvalidArgument("rank 1 gives up");
    EXPECT_THROW(group.all_reduce(filled(device_of(group), 1)).wait(), CommError);
    throw InvalidArgument("rank 1 gives up");
  };
  EXPECT_THROW(on_devices(2, body), InvalidArgument);
}

// In a process of its own, whose device never works again.
[[noreturn]] void reduce_on_a_device_that_fails() {
  install();
  try {
    on_devices(2, [](const ProcessGroup& group) {
      const at::Tensor tensor = filled(device_of(group), 1);
      if (group.rank() == 1)
        streams().enqueue(Runtime::get().current(device_of(group).index()),
            [] { throw std::runtime_error("ECC error"); });
      group.all_reduce(tensor).wait();
    });
  } catch (const std::runtime_error& error) {
    std::cerr << error.what() << '\n';
    std::_Exit(7);
  }
  std::_Exit(0);
}

TEST(StagedCollectives, AFailureOfTheDeviceIsThrownToWhoWaits) {
  EXPECT_EXIT(reduce_on_a_device_that_fails(), ::testing::ExitedWithCode(7), "ECC error");
}

TEST(NcclCollectives, ACallThatAnotherRankDoesNotMakeTimesOutAndIsNamed) {
  install();
  const UseEmulatedNccl nccl;
  run_ranks(2, [](const ProcessGroup& world) {
    world.set_timeout(std::chrono::milliseconds(300));
    const ProcessGroup group = world.with_device(device_of(world));
    world.set_timeout(std::chrono::minutes(1));
    const at::Tensor tensor = filled(device_of(group), 1);
    if (world.rank() == 0) {
      Work late = group.all_reduce(tensor);
      while (!late.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      tensor.cpu();  // the device has nothing more to wait for
      EXPECT_THAT([&] { late.wait(); },
          ::testing::ThrowsMessage<TimeoutError>(
              ::testing::AllOf(HasSubstr("all_reduce on emulated:0 timed out after 0.3 s"),
                  HasSubstr("another rank"))));
      EXPECT_THROW(group.all_reduce(tensor).wait(), CommError) << "it makes no more calls";
    }
    world.barrier().wait();
  });
}

// NCCL ends the kernels of a communicator that is aborted, and waiting stops no host.
TEST(NcclCollectives, TheLastCallIsCompleteThoughTheGroupIsClosedAtOnce) {
  install();
  const UseEmulatedNccl nccl;
  for (int round = 0; round < 20; ++round) {
    std::vector<at::Tensor> sums(3);
    run_ranks(3, [&](const ProcessGroup& world) {
      const at::Tensor sum = filled(device_of(world), world.rank() + 1);
      world.with_device(device_of(world)).all_reduce(sum).wait();
      sums[static_cast<std::size_t>(world.rank())] = sum;
    });
    for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.cpu().eq(6).all().item<bool>());
  }
}

TEST(RoutedCollectives, RefuseTensorsOfSeveralDevices) {
  install();
  on_devices(2, [](const ProcessGroup& group) {
    const at::Tensor there = filled(device_of(group), 0, 1), here = at::zeros({2});
    EXPECT_THAT([&] { group.all_gather(here, there).wait(); },
        ::testing::ThrowsMessage<InvalidArgument>(
            HasSubstr("all_gather: the tensors must be on one device: ")));
  });
}

TEST(RoutedCollectives, AreOfDevicesWithANumber) {
  install();
  run_ranks(2, [](const ProcessGroup& world) {
    EXPECT_THAT([&] { world.with_device(torch::Device(c10::kPrivateUse1)); },
        ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("with its number, as emulated:0")));
  });
}

TEST(NcclCollectives, SaysWhatItCannotReduce) {
  install();
  const UseEmulatedNccl nccl;
  on_devices(2, [](const ProcessGroup& group) {
    const at::Tensor whole =
        at::zeros({2}, at::TensorOptions(torch::kInt).device(device_of(group)));
    EXPECT_THROW(group.all_reduce(whole, ReduceOp::kXor).wait(), InvalidArgument);
    EXPECT_THROW(group.all_reduce(whole.view(torch::kUInt32)).wait(), InvalidArgument);
  });
}

}  // namespace
}  // namespace lockstep::emulated
