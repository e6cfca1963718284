// Copies of what a device holds, while it goes on computing.

#include "lockstep/snapshot/host_copy.h"

#include <gmock/gmock.h>
#include <vector>

#include "tests/accelerator/runtime.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/types.h>

namespace lockstep::emulated {
namespace {

const torch::Device kCopied(c10::kPrivateUse1, 0);

nn::NamedTensors named(const at::Tensor& tensor) {
  nn::NamedTensors tensors;
  tensors.insert("weight", tensor);
  return tensors;
}

std::vector<float> taken(HostCopy& copy) {
  const auto entry = copy.row_major().front().front();
  const auto* const numbers = reinterpret_cast<const float*>(entry.bytes.data());
  return {numbers, numbers + entry.bytes.size() / sizeof(float)};
}

class HostCopyOfDevice : public ::testing::Test {
 protected:
  void SetUp() override { install(); }
  void TearDown() override { Runtime::get().streams().set_seed(0); }

  static at::Tensor ones() { return at::full({100}, 1.0F, kCopied); }
};

TEST_F(HostCopyOfDevice, HasWhatTheStepComputesFirst) {
  const at::Tensor weight = ones();
  weight.mul_(3);
  HostCopy copy;
  copy.take({named(weight)});
  EXPECT_THAT(taken(copy), ::testing::Each(3));
}

TEST_F(HostCopyOfDevice, HasNothingOfTheNextStep) {
  const at::Tensor weight = ones();
  HostCopy copy;
  copy.take({named(weight)});
  weight.mul_(5);
  EXPECT_EQ(weight.cpu()[0].item<float>(), 5) << "the step is over before the copy is looked at";
  EXPECT_THAT(taken(copy), ::testing::Each(1));
}

// Until the next step there is much to compute, which the copies must not hold up.
TEST_F(HostCopyOfDevice, IsMadeWhileTheDeviceGoesOn) {
  for (c10::DeviceIndex device = 0; device < Runtime::kDevices; ++device)
    Runtime::get().finish(device);
  const std::size_t left = Runtime::get().streams().left();
  const at::Tensor weight = ones();
  HostCopy copy;
  copy.begin({named(weight)});
  EXPECT_EQ((weight * 2).cpu()[0].item<float>(), 2);
  EXPECT_GT(Runtime::get().streams().left(), left) << "the device has waited for the copy";
  copy.let_writers_wait();
  weight.mul_(5);
  EXPECT_EQ(weight.cpu()[0].item<float>(), 5);
  EXPECT_THAT(taken(copy), ::testing::Each(1));
}

// As of a snapshot that was given up.
TEST_F(HostCopyOfDevice, IsNotOverwrittenByOneThatNobodyLookedAt) {
  HostCopy copy;
  copy.take({named(ones())});
  copy.take({named(at::full({100}, 2.0F, at::kFloat))});
  EXPECT_THAT(taken(copy), ::testing::Each(2));
}

TEST_F(HostCopyOfDevice, KeepsItsBufferUntilTheCopiesHaveCome) {
  const at::Tensor weight = ones();
  HostCopy().take({named(weight)});
  const auto of_host = at::TensorOptions(at::kByte).device(at::kCPU).pinned_memory(true);
  const at::Tensor next = at::empty({static_cast<std::int64_t>(weight.nbytes())}, of_host);
  next.fill_(7);
  Runtime::get().finish(kCopied.index());
  EXPECT_TRUE(next.eq(7).all().item<bool>());
}

// One that has gaps is copied twice; its memory must not be that of the next ones before it went.
TEST_F(HostCopyOfDevice, KeepsItsTemporariesUntilTheyAreCopied) {
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) {
    Runtime::get().streams().set_seed(seed);
    const at::Tensor whole = at::full({100, 2}, 2.0F, kCopied);
    HostCopy copy;
    copy.take({named(whole.select(1, 0))});
    std::vector<at::Tensor> later;
    for (int i = 0; i < 20; ++i) later.push_back(at::full({100}, 9.0F, kCopied));
    EXPECT_THAT(taken(copy), ::testing::Each(2));
  }
}

}  // namespace
}  // namespace lockstep::emulated
