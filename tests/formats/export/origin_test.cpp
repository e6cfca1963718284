#include "lockstep/formats/export/origin.h"

#include <gtest/gtest.h>

namespace lockstep::exported {
namespace {

const std::string kOwn = "File \"/home/me/net.py\", line 7, in forward\n    h = self.c(x)\n";
const std::string kCalled = "  File \"/home/me/block.py\", line 3, in forward\n    return f(x)\n";
const std::string kTorch =
    "  File \"/x/lib/python3.11/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n"
    "    return F.linear(\n";

TEST(SourceLine, IsTheInnermostOfTheUser) {
  EXPECT_EQ(source_line(kOwn), "net.py:7, in forward: h = self.c(x)");
  EXPECT_EQ(source_line(kOwn + kTorch), "net.py:7, in forward: h = self.c(x)");
  EXPECT_EQ(source_line(kTorch + kOwn + kCalled), "block.py:3, in forward: return f(x)");
}

TEST(SourceLine, IsOfTorchWhereNothingElseIs) {
  EXPECT_EQ(source_line(kTorch), "linear.py:134, in forward: return F.linear(");
  EXPECT_EQ(source_line("File \"torch/fx/passes/runtime_assert.py\", line 24, in insert"),
      "runtime_assert.py:24, in insert");
}

// Strict export marks the part of the line.
TEST(SourceLine, LeavesOutMarksAndMuchOfLongLines) {
  EXPECT_EQ(source_line("  " + kOwn + "        ^^^^^^\n"), "net.py:7, in forward: h = self.c(x)");
  const std::string line =
      source_line("File \"net.py\", line 7, in f\n    " + std::string(200, 'x') + "\n");
  EXPECT_EQ(line, "net.py:7, in f: " + std::string(120, 'x') + "...");
  const std::string name(1 << 20, 'n');
  EXPECT_LT(source_line("File \"" + name + "\", line " + name + ", in " + name).size(), 400U);
  EXPECT_EQ(source_line("File \"a\x1b.py\", line 7, in f"), "a\\x1b.py:7, in f");
}

TEST(SourceLine, IsEmptyWithoutAFrame) {
  for (const char* trace : {"", "\n\n", "no frame", "    x = 1\n"})
    EXPECT_EQ(source_line(trace), "");
}

TEST(ModulesOf, AreListedFromTheModelDown) {
  const auto modules = modules_of(
      "L__self__,,net.Net;L__self__blocks.0@1,blocks.0,net.Block[int, (str, int)];"
      "_empty_nn_module_stack_from_metadata_hook,_empty_nn_module_stack_from_metadata_hook,_");
  ASSERT_EQ(modules.size(), 2U);
  EXPECT_EQ(modules[0].path, "");
  EXPECT_EQ(modules[0].type, "net.Net");
  EXPECT_EQ(modules[1].path, "blocks.0");
  EXPECT_EQ(modules[1].type, "net.Block[int, (str, int)]");
  EXPECT_TRUE(modules_of("").empty());
}

}  // namespace
}  // namespace lockstep::exported
