// Convolutions of joined maps: which nodes are one step, and that it computes what they do.

#include "lockstep/nn/exported/joined_maps_fusion.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/nn/exported/nodes_program.h"
#include <ATen/ops/randn.h>
#include <torch/types.h>

#include "lockstep/nn/kernels.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_as_nodes;
using lockstep::testing::Fused;
using lockstep::testing::Nodes;
using lockstep::testing::value;
using lockstep::testing::whole_numbers;

constexpr std::int64_t kSmallMaps = 3, kLargeMaps = 4;

/// The ways in which a head is written; the U-Net's by default.
struct HeadForm {
  std::string read = "", enlarging = "upsample_bilinear2d.vec";
  std::int64_t dimension = 1, stride = 1, kernel = 1, outputs = 2;
  bool has_bias = true, is_enlarged = true, is_written_to = false;
};

/// conv2d(cat([enlarged(small), large])) of small [2, 3, 3, 4] and large [2, 4, 6, 8].
Nodes head_program(const HeadForm& form = {}) {
  Nodes nodes;
  nodes.input("small", {2, kSmallMaps, form.is_enlarged ? 3 : 6, form.is_enlarged ? 4 : 8})
      .input("large", {2, kLargeMaps, 6, 8})
      .weight("weight", {form.outputs, kSmallMaps + kLargeMaps, form.kernel, form.kernel})
      .one("s", "neg.default", "small")
      .one("l", "neg.default", "large");
  if (form.has_bias) nodes.weight("bias", {form.outputs});
  if (form.is_enlarged)
    nodes.node("e", form.enlarging,
        {{"input", value("s")}, {"output_size", whole_numbers({6, 8})}, {"align_corners", {false}},
            {"scale_factors", {}}});
  const std::string enlarged = form.is_enlarged ? "e" : "s";
  nodes.node("joined", "cat.default",
      {{"tensors", {ExportedList{value(enlarged), value("l")}}}, {"dim", {form.dimension}}});
  if (form.is_written_to) nodes.one("written", "relu_.default", "s");
  nodes
      .node("y", "conv2d.default",
          {{"input", value("joined")}, {"weight", value("weight")},
              {"bias", form.has_bias ? value("bias") : ExportedArgument{}},
              {"stride", whole_numbers({form.stride, form.stride})}})
      .output("y");
  if (!form.read.empty()) nodes.output(form.read);
  return nodes;
}

const Fused kOneHead{3};

TEST(JoinedMapsFusion, JoinsTheNodesOfAHead) {
  EXPECT_EQ(head_program().fused(), kOneHead);
  EXPECT_EQ(head_program({.read = "s"}).fused(), kOneHead);
  EXPECT_EQ(head_program({.read = "l"}).fused(), kOneHead);
  EXPECT_EQ(head_program({.has_bias = false}).fused(), kOneHead);
}

TEST(JoinedMapsFusion, LeavesAloneWhatIsReadOrWrittenBetween) {
  for (const char* const inner : {"e", "joined"})
    EXPECT_EQ(head_program({.read = inner}).fused(), Fused()) << inner;
  EXPECT_EQ(head_program({.is_written_to = true}).fused(), Fused());
}

TEST(JoinedMapsFusion, LeavesAloneWhatIsNoHead) {
  EXPECT_EQ(head_program({.is_enlarged = false}).fused(), Fused()) << "nothing to gain";
  EXPECT_EQ(head_program({.stride = 2}).fused(), Fused());
  EXPECT_EQ(head_program({.dimension = 2}).fused(), Fused());
  EXPECT_EQ(head_program({.enlarging = "upsample_bicubic2d.vec"}).fused(), Fused());
}

std::vector<at::Tensor> maps() {
  torch::manual_seed(3);
  return {at::randn({2, kSmallMaps, 3, 4}), at::randn({2, kLargeMaps, 6, 8})};
}

// That a kernel is larger, or the outputs are more than what is enlarged, is seen when it runs.
TEST(JoinedMapsFusion, ComputesWhatTheNodesDo) {
  const std::string own = "AddBackward";
  expect_as_nodes(head_program(), head_program({.read = "e"}), maps(), own);
  expect_as_nodes(head_program({.has_bias = false}), head_program({.read = "e", .has_bias = false}),
      maps(), own);
  for (const HeadForm& form : {HeadForm{.kernel = 3}, HeadForm{.outputs = kSmallMaps + 1}}) {
    HeadForm plain = form;
    plain.read = "e";
    std::string name;
    lockstep::testing::expect_close(
        lockstep::testing::learned(head_program(form), maps(), Kernels::kOwn, &name),
        lockstep::testing::learned(head_program(plain), maps(), Kernels::kLibTorch));
    EXPECT_EQ(name.find(own), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace lockstep::nn
