#include "lockstep/nn/exported/exported_model.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/exported/stored_parameters.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_parts;
using lockstep::testing::message_of;

std::string archive(const std::string& name) {
  return std::string(LOCKSTEP_EXPORT_DATA) + "/" + name + ".pt2";
}

torch::Tensor images() {
  torch::manual_seed(2);
  return torch::randn({3, 1, 4, 4});
}

TEST(ExportedModel, IsANetByItsFile) {
  auto model = make_model(archive("conv"), 3);
  auto net = load_exported(archive("conv"));
  EXPECT_EQ(model->takes(), std::vector<std::size_t>{1});
  EXPECT_EQ(named_state(*model).keys(), named_state(*net).keys());
  EXPECT_EQ(model->named_modules().size(), net->named_modules().size());
  model->eval();
  net->eval();
  const auto expected = net->first_output({images()});
  EXPECT_TRUE(torch::equal(model->forward(images()), expected));
  auto layers = model->layers();
  EXPECT_EQ(layers.keys(), (std::vector<std::string>{"conv", "norm", "drop", "head"}));
  EXPECT_TRUE(torch::equal(run_layers(layers, images()), expected));
}

TEST(ExportedModel, ConvertsAndClones) {
  auto model = make_model(archive("conv"), 3);
  model->named_modules()["norm"]->eval();
  const auto copy = std::dynamic_pointer_cast<ModelImpl>(model->clone());
  EXPECT_TRUE(copy->is_training());
  EXPECT_FALSE(copy->named_modules()["norm"]->is_training());
  copy->to(torch::kDouble);
  EXPECT_EQ(copy->forward(images().to(torch::kDouble)).scalar_type(), torch::kDouble);
  EXPECT_EQ(model->forward(images()).scalar_type(), torch::kFloat);
}

TEST(ExportedModel, TakesBatchesOfAnySize) {
  expect_parts(message_of<InvalidArgument>([] { make_model(archive("programs"), 8); }),
      {"the first size of its input ids is fixed", "{0: torch.export.Dim(\"batch\")}"});
}

TEST(ExportedModel, LeavesItsBatchAsItIs) {
  const auto batch = torch::rand({3, 2, 4, 4}).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto before = batch.clone();
  auto model = make_model(archive("in_place"), 3);
  const torch::Tensor output = model->forward(batch);
  EXPECT_TRUE(torch::equal(batch, before));
  EXPECT_TRUE(torch::equal(output, output.clamp_min(0))) << "rectified by a view";
  auto layers = model->layers();
  EXPECT_TRUE(torch::equal(run_layers(layers, batch), output));
  EXPECT_TRUE(torch::equal(batch, before));

  auto net = load_exported(archive("in_place"));
  const auto python = batch.contiguous();
  EXPECT_TRUE(torch::allclose(net->first_output({python}), output, 1e-6, 1e-6));
  EXPECT_TRUE(torch::equal(python, 2 * before));
}

// As where no rank can hold all of a model.
TEST(ExportedModel, IsReadParameterByParameterWithTheSameValues) {
  for (const char* const name : {"conv", "in_place", "language", "skips"}) {
    const Model expected = make_model(archive(name), 3);
    const Model model = make_model(archive(name), 3, {.is_filled_later = true});
    const auto stored = dynamic_cast<const ExportedModelImpl&>(*model).stored_parameters();
    for (const auto& item : model->named_parameters()) {
      item.value().detach().zero_();
      stored->copy_to(item.value(), item.key());
    }
    const auto wanted = named_state(*expected);
    for (const auto& item : named_state(*model)) {
      const torch::Tensor& other = wanted[item.key()];
      EXPECT_TRUE(torch::equal(item.value(), other)) << name << " " << item.key();
      EXPECT_EQ(item.value().strides(), other.strides()) << name << " " << item.key();
      EXPECT_EQ(item.value().requires_grad(), other.requires_grad()) << name << " " << item.key();
    }
  }
}

TEST(ExportedModel, ReadsParametersOfAnotherType) {
  const Model expected = make_model(archive("conv"), 3);
  Model model = make_model(archive("conv"), 3, {.is_filled_later = true});
  model->to(torch::kDouble);
  const torch::Tensor head = model->named_parameters()["head.weight"];
  dynamic_cast<const ExportedModelImpl&>(*model).stored_parameters()->copy_to(head, "head.weight");
  EXPECT_TRUE(torch::equal(head, expected->named_parameters()["head.weight"].to(torch::kDouble)));
}

TEST(ExportedModel, IsNotReadFromAFileThatChanges) {
  const lockstep::testing::TemporaryFolder folder;
  const std::string file = folder.file("net.pt2");
  std::filesystem::copy_file(archive("conv"), file);
  const Model model = make_model(file, 3, {.is_filled_later = true});
  std::ofstream(file, std::ios::app) << "more";
  const auto stored = dynamic_cast<const ExportedModelImpl&>(*model).stored_parameters();
  EXPECT_THROW(stored->copy_to(model->named_parameters()["head.bias"], "head.bias"), DataError);
}

TEST(ExportedModel, IsNotThereWithoutItsFile) {
  EXPECT_THROW(make_model("no_such.pt2", 3), DataError);
}

}  // namespace
}  // namespace lockstep::nn
