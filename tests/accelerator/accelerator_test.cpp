#include "lockstep/device/accelerator.h"

#include <cmath>
#include <csignal>
#include <cstdio>
#include <gmock/gmock.h>
#include <vector>

#include "tests/accelerator/runtime.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/types.h>

namespace lockstep::emulated {
namespace {

const c10::Device kFirst(c10::kPrivateUse1, 0);
const c10::Device kSecond(c10::kPrivateUse1, 1);

class EmulatedAccelerator : public ::testing::Test {
 protected:
  void SetUp() override {
    install();
    runtime_.finish(0);
    runtime_.finish(1);
    runtime_.take_counts();
  }

  at::Tensor twos() const { return at::full({1000}, 2.0, kFirst); }
  static double sum(const at::Tensor& tensor) { return tensor.cpu().sum().item<double>(); }

  Runtime& runtime_ = Runtime::get();
};

TEST_F(EmulatedAccelerator, ComputesWhatTheCpuComputes) {
  const at::Tensor a = torch::rand({7, 5}), b = torch::rand({5, 3});
  const at::Tensor product = a.to(kFirst).matmul(b.to(kFirst));
  EXPECT_EQ(product.device(), kFirst);
  EXPECT_TRUE(product.cpu().equal(a.matmul(b)));
}

TEST_F(EmulatedAccelerator, TheHostCannotReadItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const at::Tensor tensor = twos();
        runtime_.finish(0);
        std::printf("%f", *tensor.const_data_ptr<float>());
      },
      ::testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(EmulatedAccelerator, RunsNothingBeforeSomebodyWaits) {
  const at::Tensor tensor = twos() * 3;
  const Mark end = runtime_.streams().mark(runtime_.current(0));
  EXPECT_FALSE(runtime_.streams().is_reached(end));
  EXPECT_EQ(sum(tensor), 6000);
  EXPECT_TRUE(runtime_.streams().is_reached(end));
}

TEST_F(EmulatedAccelerator, NewMemoryIsNaN) {
  EXPECT_TRUE(std::isnan(sum(at::empty({8}, kFirst))));
}

TEST_F(EmulatedAccelerator, WithoutAnEventAnotherStreamReadsWhatIsNotThereYet) {
  const at::Tensor tensor = at::full({5000}, 2.0, kFirst);  // memory that no other test had
  const c10::StreamGuard guard(runtime_.make_stream(0));
  EXPECT_TRUE(std::isnan(sum(tensor + 1)));
}

TEST_F(EmulatedAccelerator, AnEventOrdersTwoStreams) {
  const at::Tensor tensor = twos();
  c10::Event event(c10::kPrivateUse1);
  event.record(runtime_.current_stream(0));
  const c10::Stream other = runtime_.make_stream(0);
  event.block(other);
  const c10::StreamGuard guard(other);
  EXPECT_EQ(sum(tensor + 1), 3000);
}

double sum_on_other_stream_of_freed(bool recorded) {
  Runtime& runtime = Runtime::get();
  const c10::Stream other = runtime.make_stream(0);
  at::Tensor source = at::full({1000}, 2.0, kFirst), sums;
  c10::Event event(c10::kPrivateUse1);
  event.record(runtime.current_stream(0));
  event.block(other);
  {
    const c10::StreamGuard guard(other);
    sums = source + 1;
  }
  if (recorded) source.record_stream(other);
  source.reset();
  const at::Tensor reused = at::full({1000}, 7.0, kFirst);  // of the memory that `source` had
  runtime.streams().finish(runtime.streams().mark(runtime.current(0)));
  const c10::StreamGuard guard(other);
  return sums.cpu().sum().item<double>();
}

TEST_F(EmulatedAccelerator, MemoryFreedBeforeAnotherStreamReadItIsSomebodyElses) {
  EXPECT_EQ(sum_on_other_stream_of_freed(true), 3000);
  EXPECT_EQ(sum_on_other_stream_of_freed(false), 8000);
}

TEST_F(EmulatedAccelerator, APinnedBufferThatIsUsedAgainEarlyGivesTheNewValues) {
  at::Tensor buffer = at::ones({1000}).pin_memory();
  ASSERT_TRUE(buffer.is_pinned());
  const at::Tensor copied = buffer.to(kFirst, true);
  buffer.fill_(5);
  EXPECT_EQ(sum(copied), 5000);
}

TEST_F(EmulatedAccelerator, ACopyToPinnedMemoryArrivesWhenItIsWaitedFor) {
  at::Tensor target = at::ones({1000}).pin_memory();
  target.copy_(twos(), true);
  EXPECT_EQ(target.sum().item<double>(), 1000);
  runtime_.finish(0);
  EXPECT_EQ(target.sum().item<double>(), 2000);
}

TEST_F(EmulatedAccelerator, CopiesBetweenDevicesWaitForBoth) {
  const at::Tensor there = twos().to(kSecond);
  EXPECT_EQ(sum(there * 2), 4000);
  EXPECT_EQ(runtime_.take_counts().copies_between_devices, 1);
}

TEST_F(EmulatedAccelerator, RefusesTensorsOfTwoDevices) {
  EXPECT_THROW(twos() + twos().to(kSecond), c10::Error);
  EXPECT_THROW(twos() + at::ones({1000}), c10::Error);
}

TEST_F(EmulatedAccelerator, CountsWhatTheHostWaitsFor) {
  at::Tensor tensor = twos();
  tensor.add_(1).mul_(2);
  EXPECT_EQ(runtime_.take_counts().host_waits, 0);
  EXPECT_EQ(tensor.sum().item<double>(), 6000);
  EXPECT_EQ(runtime_.take_counts().host_waits, 1);
}

TEST_F(EmulatedAccelerator, ResultsWhoseSizesDependOnValues) {
  const at::Tensor tensor = torch::tensor({1.0, -2.0, 3.0}).to(kFirst);
  EXPECT_EQ(sum(tensor.masked_select(tensor > 0)), 4);
  EXPECT_EQ(sum(tensor.index({tensor > 0})), 4);
  EXPECT_EQ(tensor.nonzero().size(0), 3);
}

TEST_F(EmulatedAccelerator, RandomNumbersFollowTheDevicesSeed) {
  torch::manual_seed(4);
  const at::Tensor first = torch::rand({10}, kFirst).cpu(),
                   second = torch::rand({10}, kFirst).cpu();
  EXPECT_FALSE(first.equal(second));
  torch::manual_seed(4);
  const at::Tensor on_host = torch::rand({10});
  torch::manual_seed(4);
  EXPECT_TRUE(torch::rand({10}, kFirst).cpu().equal(first));
  EXPECT_TRUE(torch::rand({10}).equal(on_host)) << "the host's generator is another";
}

// Where the copying stream runs ahead, the memory of one copy must not become that of the next
// while somebody computes with it.
TEST_F(EmulatedAccelerator, CopiesOfACopierLiveAsLongAsTheyAreComputedWith) {
  DeviceCopier copier(kFirst);
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    runtime_.streams().set_seed(seed);
    std::vector<at::Tensor> sums;
    for (int i = 0; i < 50; ++i) sums.push_back(copier(at::full({100}, i, at::kFloat)) + 1);
    for (int i = 0; i < 50; ++i)
      EXPECT_TRUE(sums[static_cast<std::size_t>(i)].cpu().equal(at::full({100}, i + 1, at::kFloat)))
          << i;
    runtime_.streams().set_seed(0);
  }
}

TEST_F(EmulatedAccelerator, WhatGrowsStaysOnItsDevice) {
  const c10::Device third(c10::kPrivateUse1, 2);
  const at::Tensor grown = at::empty({0}, third);
  grown.resize_({300});
  EXPECT_EQ(runtime_.device_of(grown.const_data_ptr()), 2);
  const at::Tensor kept = at::full({4}, 7.0, third);
  kept.resize_({400});
  EXPECT_EQ(runtime_.device_of(kept.const_data_ptr()), 2);
  EXPECT_TRUE(kept.cpu().slice(0, 0, 4).equal(at::full({4}, 7.0)));
}

}  // namespace
}  // namespace lockstep::emulated
