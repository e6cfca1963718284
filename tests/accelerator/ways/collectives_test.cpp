// Collectives of tensors on an accelerator: by way of the host, and by NCCL on emulated streams.

#include <chrono>
#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/accelerator/emulated_nccl.h"
#include "tests/accelerator/runtime.h"
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/optim/clip_grad_norm.h"

namespace lockstep::emulated {
namespace {

using ::testing::HasSubstr;

torch::Device device_of(const ProcessGroup& group) {
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(group.rank())};
}

at::Tensor filled(const ProcessGroup& group, double value, std::int64_t size = 1000) {
  return at::full({size}, value, at::TensorOptions(torch::kFloat).device(device_of(group)));
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

void on_devices(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  run_ranks(ranks, [&](const ProcessGroup& world) { body(world.with_device(device_of(world))); });
}

class DeviceCollectives : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceCollectives() {
    install();
    if (GetParam() == std::string("nccl")) nccl_.emplace();
  }

  // Until the ranks have connected, NCCL's call keeps its tensors itself.
  void let_begin(Work& work, const ProcessGroup& group) const {
    if (!nccl_) return;
    group.barrier().wait();
    (void)work.done();
  }

 private:
  std::optional<UseEmulatedNccl> nccl_;
};

INSTANTIATE_TEST_SUITE_P(Engines, DeviceCollectives, ::testing::Values("staged", "nccl"),
    [](const ::testing::TestParamInfo<const char*>& engine) { return std::string(engine.param); });

TEST_P(DeviceCollectives, AllReduceTakesWhatTheStreamComputesFirst) {
  on_devices(3, [](const ProcessGroup& group) {
    at::Tensor tensor = filled(group, group.rank());
    tensor.add_(1);
    Work work = group.all_reduce(tensor);
    work.wait();
    tensor.mul_(2);
    EXPECT_THAT(values_of(tensor), ::testing::Each(12));
  });
}

TEST_P(DeviceCollectives, WhatIsReadMayBeGivenAwayAtOnce) {
  on_devices(2, [this](const ProcessGroup& group) {
    const at::Tensor all = at::zeros({2000}, at::TensorOptions(device_of(group)));
    Work work = group.all_gather(all, filled(group, 7));
    let_begin(work, group);
    const at::Tensor next = filled(group, 99);  // where the input was, if it is free
    work.wait();
    EXPECT_THAT(values_of(all), ::testing::Each(7));
  });
}

TEST_P(DeviceCollectives, WhatIsWrittenMayBeGivenAwayAtOnce) {
  on_devices(2, [this](const ProcessGroup& group) {
    Work work =
        group.all_gather(at::zeros({2000}, at::TensorOptions(device_of(group))), filled(group, 7));
    let_begin(work, group);
    const at::Tensor next = filled(group, 99, 2000);  // where the output was, if it is free
    work.wait();
    EXPECT_THAT(values_of(next), ::testing::Each(99));
  });
}

TEST_P(DeviceCollectives, ManyUnderWayEndInAnyOrder) {
  on_devices(2, [](const ProcessGroup& group) {
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(filled(group, i + group.rank(), 100 + i));
      works.push_back(group.all_reduce(tensors.back()));
    }
    for (int i = 19; i >= 0; --i) {
      works[static_cast<std::size_t>(i)].wait();
      EXPECT_THAT(values_of(tensors[static_cast<std::size_t>(i)]), ::testing::Each(2 * i + 1));
    }
  });
}

TEST_P(DeviceCollectives, TensorsOfTheHostGoBesideThem) {
  on_devices(2, [](const ProcessGroup& group) {
    const at::Tensor device = filled(group, 1), host = at::full({5}, 2.0F);
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
    at::Tensor parameter = filled(group, 0, 1);
    parameter.mutable_grad() = filled(group, 3 + group.rank(), 1);
    clip_gradients({parameter}, 1, group, device_of(group));
    EXPECT_NEAR(values_of(parameter.grad()).front(), (3 + group.rank()) / 5.0, 1e-5);
  });
}

TEST_P(DeviceCollectives, MessagesInBothDirectionsPass) {
  on_devices(2, [](const ProcessGroup& group) {
    const int other = 1 - group.rank();
    constexpr std::int64_t kMany = std::int64_t{12} << 20;  // more than a rank may leave waiting
    const at::Tensor sent = filled(group, group.rank(), kMany), received = filled(group, 9, kMany);
    Work sending = group.send(sent, other);
    group.recv(received, other).wait();
    sending.wait();
    EXPECT_EQ(received.mean().item<double>(), other);
  });
}

TEST_P(DeviceCollectives, EveryKind) {
  on_devices(2, [](const ProcessGroup& group) {
    const int rank = group.rank();
    const at::Tensor own = filled(group, rank + 1, 4), all = filled(group, 0, 8);
    group.all_gather(all, own).wait();
    EXPECT_THAT(values_of(all), ::testing::ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
    group.broadcast(own, 1).wait();
    EXPECT_THAT(values_of(own), ::testing::Each(2));
    const at::Tensor half = filled(group, 0, 2);
    group.reduce_scatter(half, own).wait();
    EXPECT_THAT(values_of(half), ::testing::Each(4));
    const at::Tensor swapped = filled(group, 0, 8);
    group.all_to_all(swapped, all).wait();
    const float piece = rank == 0 ? 1 : 2;
    EXPECT_THAT(values_of(swapped), ::testing::Each(piece));
    group.reduce(own, 0).wait();
    EXPECT_THAT(values_of(own), ::testing::Each(rank == 0 ? 4 : 2));
    group.gather(rank == 0 ? all : at::Tensor(), own, 0).wait();
    const std::vector<float> gathered = {4, 4, 4, 4, 2, 2, 2, 2};
    EXPECT_EQ(values_of(all) == gathered, rank == 0);
    group.scatter(half, rank == 0 ? own : at::Tensor(), 0).wait();
    EXPECT_THAT(values_of(half), ::testing::Each(4));
  });
}

TEST_P(DeviceCollectives, SubgroupsHaveThemToo) {
  on_devices(4, [](const ProcessGroup& group) {
    const ProcessGroup half = group.split(group.rank() % 2, group.rank());
    const at::Tensor tensor = filled(group, group.rank());
    half.all_reduce(tensor).wait();
    EXPECT_THAT(values_of(tensor), ::testing::Each(group.rank() % 2 == 0 ? 2 : 4));
  });
}

TEST(StagedCollectives, AFailureOfAnotherRankReachesWhoWaits) {
  install();
  const auto body = [](const ProcessGroup& world) {
    const ProcessGroup group = world.with_device(device_of(world));
    if (world.rank() == 1) throw InvalidArgument("rank 1 gives up");
    EXPECT_THROW(group.all_reduce(filled(group, 1)).wait(), CommError);
    throw InvalidArgument("rank 1 gives up");
  };
  EXPECT_THROW(run_ranks(2, body), InvalidArgument);
}

// In a process of its own, whose device never works again.
[[noreturn]] void reduce_on_a_device_that_fails() {
  install();
  try {
    run_ranks(2, [](const ProcessGroup& world) {
      const ProcessGroup group = world.with_device(device_of(world));
      const at::Tensor tensor = filled(group, 1);
      Runtime& runtime = Runtime::get();
      if (world.rank() == 1) {
        runtime.streams().enqueue(runtime.current(device_of(world).index()),
            [] { throw std::runtime_error("ECC error"); });
      }
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
    const at::Tensor tensor = filled(group, 1);
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
      const torch::Device device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(world.rank()));
      const at::Tensor sum = at::full({1000}, world.rank() + 1.0, device);
      world.with_device(device).all_reduce(sum).wait();
      sums[static_cast<std::size_t>(world.rank())] = sum;
    });
    for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.cpu().eq(6).all().item<bool>());
  }
}

TEST(RoutedCollectives, RefuseTensorsOfSeveralDevices) {
  install();
  run_ranks(2, [](const ProcessGroup& world) {
    const torch::Device device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(world.rank()));
    const ProcessGroup group = world.with_device(device);
    const at::Tensor there = at::zeros({1}, device), here = at::zeros({2});
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
  run_ranks(2, [](const ProcessGroup& world) {
    const ProcessGroup group = world.with_device(device_of(world));
    const at::Tensor whole =
        at::zeros({2}, at::TensorOptions(torch::kInt).device(device_of(world)));
    EXPECT_THROW(group.all_reduce(whole, ReduceOp::kXor).wait(), InvalidArgument);
    EXPECT_THROW(group.all_reduce(whole.view(torch::kUInt32)).wait(), InvalidArgument);
  });
}

}  // namespace
}  // namespace lockstep::emulated
