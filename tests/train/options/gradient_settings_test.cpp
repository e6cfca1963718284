#include "lockstep/train/options/gradient_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsed_flags.h"

#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(GradientFlags, AreReadAndWritten) {
  EXPECT_FALSE(testing::parsed("").gradients.bucket_mb);
  EXPECT_EQ(testing::parsed("").gradients.comm_hook.kind, CommHookKind::kNone);
  for (const std::string hook : {"fp16", "bf16", "powersgd:3:20"}) {
    const TrainOptions options =
        testing::parsed("--bucket-mb 0.5 --parallel ddp --comm-hook " + hook);
    EXPECT_EQ(options.gradients.bucket_mb, 0.5);
    EXPECT_EQ(comm_hook_text(options.gradients.comm_hook), hook);
    EXPECT_THAT(config_toml(options), HasSubstr("comm-hook = \"" + hook + "\"\n"));
  }
  EXPECT_EQ(comm_hook_text(parse_comm_hook("powersgd")), "powersgd:1:1000");
  EXPECT_EQ(comm_hook_text(parse_comm_hook("powersgd:2")), "powersgd:2:1000");
}

TEST(GradientFlags, WhatTheyDoNotTakeIsRefused) {
  const auto refused = [](const std::string& flags) {
    return testing::refusal("--parallel ddp " + flags);
  };
  EXPECT_EQ(refused("--comm-hook fp61"),
      "train: --comm-hook must be one of none, fp16, bf16, powersgd, powersgd:RANK, "
      "powersgd:RANK:STEP: fp61; did you mean fp16?");
  EXPECT_THAT(refused("--comm-hook bf16:2"), HasSubstr("must be one of"));
  EXPECT_THAT(refused("--comm-hook powersgd:1:2:3"), HasSubstr("must be one of"));
  for (const std::string numbers : {"0", "x", "", "1:-1", "99999999999"})
    EXPECT_THAT(refused("--comm-hook powersgd:" + numbers), HasSubstr("has whole numbers"));
  EXPECT_THAT(refused("--bucket-mb 0"), HasSubstr("--bucket-mb must be a number above 0"));
}

TEST(GradientFlags, AreForDdpAlone) {
  for (const std::string way : {"serial", "dp", "pp", "ddp+pp --places 4"})
    for (const std::string flag : {"--bucket-mb 5", "--comm-hook bf16"})
      EXPECT_THAT(testing::refusal("--parallel " + way + " " + flag),
          HasSubstr("are for --parallel ddp, not for"));
}

}  // namespace
}  // namespace lockstep
