#include "lockstep/simd/instructions.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <utility>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::simd {
namespace {

class Instructions : public ::testing::Test {
 protected:
  static void use(const char* name) { ::setenv("LOCKSTEP_SIMD", name, 1); }
  ~Instructions() override {
    ::unsetenv("LOCKSTEP_SIMD");
    ::unsetenv("LOCKSTEP_TEST_CPU_FEATURES");
  }

  static std::string refusal() {
    return lockstep::testing::message_of<InvalidArgument>(instructions_in_use);
  }
};

TEST_F(Instructions, AreTheWidestOfTheProcessorUnlessChosen) {
  constexpr InstructionSet kBuilds[] = {
      InstructionSet::kPlain, InstructionSet::kAvx2, InstructionSet::kAvx512};
  const auto widest = instructions_in_use();
  EXPECT_TRUE(has_instructions(widest));
  EXPECT_EQ(usable(kBuilds).back(), widest);
  for (const auto& [name, set] :
      {std::pair{"plain", InstructionSet::kPlain}, std::pair{"avx2", InstructionSet::kAvx2},
          std::pair{"avx512", InstructionSet::kAvx512}}) {
    if (!has_instructions(set)) break;
    use(name);
    EXPECT_EQ(instructions_in_use(), set);
    EXPECT_EQ(usable(kBuilds).back(), set);
  }
}

TEST_F(Instructions, ThatAreNotThereAreRefused) {
  use("sse");
  EXPECT_EQ(refusal(), "LOCKSTEP_SIMD: must be plain, avx2 or avx512: sse");
  ::setenv("LOCKSTEP_TEST_CPU_FEATURES", "sse4_2", 1);
  EXPECT_FALSE(has_instructions(InstructionSet::kAvx2));
  use("avx2");
  EXPECT_EQ(refusal(), "LOCKSTEP_SIMD: this processor has no avx2");
}

}  // namespace
}  // namespace lockstep::simd
