// What `lockstep train --device` and `lockstep env --check-devices` say where there is no GPU: here
// none is visible, whatever this host has.

#include <filesystem>
#include <gmock/gmock.h>

#include "tests/process/command.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

const Words kNoGpu = {"CUDA_VISIBLE_DEVICES="};

// Which one depends on the LibTorch and the driver of this host.
const auto kSaysWhatToDo = AnyOf(HasSubstr("./dev setup --gpu"), HasSubstr("NVIDIA driver"));

TEST(DeviceRefusal, AGpuThatIsDemandedAndNotThere) {
  const TemporaryFolder folder;
  const auto ended =
      run_command(words("train --model toy --data mock --max-steps 1 --device cuda --output " +
                        folder.file("run")),
          kNoGpu);
  EXPECT_EQ(ended.code(), 4) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("train: --device cuda: "), kSaysWhatToDo));
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
}

TEST(DeviceRefusal, ADeviceThatLibTorchDoesNotKnow) {
  const TemporaryFolder folder;
  const auto ended =
      train("--model toy --data mock --max-steps 1 --device cudo --output " + folder.file("run"));
  EXPECT_EQ(ended.code(), 2) << ended.err;
  EXPECT_THAT(
      ended.err, HasSubstr("LibTorch knows no device cudo; name it as cpu, cuda or cuda:1"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("run")));
}

TEST(DeviceRefusal, ASelfTestOfNothing) {
  const auto ended = run_command({"env", "--check-devices"}, kNoGpu).with_code(4);
  EXPECT_THAT(ended.err, HasSubstr("env: there is no accelerator to check"));
  const auto demanded = run_command({"env", "--check-devices", "--device", "cuda"}, kNoGpu);
  EXPECT_EQ(demanded.code(), 4) << demanded.err;
  EXPECT_THAT(demanded.err, AllOf(HasSubstr("--device cuda: "), kSaysWhatToDo));
}

}  // namespace
}  // namespace lockstep::testing
