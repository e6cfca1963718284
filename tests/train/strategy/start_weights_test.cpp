#include "lockstep/train/strategy/start_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

class StartWeightsTest : public ::testing::Test {
 protected:
  StartWeightsTest() {
    torch::manual_seed(2);
    options_.pretrained = folder_.str() + "/w.safetensors";
  }

  /// Returns the hash of the parameters that the options' training begins with.
  std::string hash_by(Parallel way, int ranks, const SampleForm& form) const {
    TrainOptions options = options_;
    options.parallel = way;
    std::string hash;
    run_ranks(ranks, [&](const ProcessGroup& world) {
      const Layout layout = plan_layout_in(options, ranks, /*of_threads=*/true);
      const auto replica = make_replica(options, layout, form, make_rank_groups(world, layout), {});
      const std::string own = replica->parameters_hash();
      if (world.rank() == 0) hash = own;
    });
    return hash;
  }

  testing::TemporaryFolder folder_;
  TrainOptions options_;
};

TEST_F(StartWeightsTest, AreTakenWhole) {
  for (const std::string name : {"toy", "gpt2-nano", "llama-260k"}) {
    options_.model = name;
    auto saved = nn::make_model(name, 5), model = nn::make_model(name, 5);
    nn::save_weights(*saved, options_.pretrained);
    const StartWeights start = start_with(model, options_);
    const auto found = nn::named_state(*model), expected = nn::named_state(*saved);
    EXPECT_EQ(start.remark, concat(found.size(), " tensors from ", options_.pretrained));
    EXPECT_EQ(start.warning, "");
    for (const auto& item : found)
      EXPECT_TRUE(item.value().equal(expected[item.key()])) << name << " " << item.key();
  }
}

// As serial training has them, though no rank has them all at once.
TEST_F(StartWeightsTest, OfShardedLanguageModelsAreTheSame) {
  const SampleForm form{.outputs = 5,
      .inputs = {{"tokens", {4}, torch::kLong}},
      .targets = {{"next", {4}, torch::kLong}}};
  for (const std::string model : {"gpt2-nano", "llama-260k"}) {
    options_.model = model;
    options_.pretrained.clear();
    const std::string drawn = hash_by(Parallel::kSerial, 1, form);
    EXPECT_EQ(hash_by(Parallel::kFsdp, 2, form), drawn) << model;
    options_.pretrained = folder_.str() + "/w.safetensors";
    torch::manual_seed(7);  // not that of the runs
    nn::save_weights(*nn::make_model(model, 5), options_.pretrained);
    const std::string read = hash_by(Parallel::kSerial, 1, form);
    EXPECT_NE(read, drawn) << model;
    EXPECT_EQ(hash_by(Parallel::kFsdp, 2, form), read) << model;
  }
}

TEST_F(StartWeightsTest, OfShardedExportedModelsAreTheSame) {
  const SampleForm images{.image = {1, 4, 4}, .outputs = 3};
  const SampleForm words{.image = {},
      .outputs = 1,
      .inputs = {{"ids", {8}, torch::kLong}},
      .targets = {{"next", {8}, torch::kLong}}};
  for (const auto& [name, form] : {std::pair("conv", images), {"language", words}}) {
    options_.model = concat(LOCKSTEP_SOURCE_DIR "/tests/formats/export/data/", name, ".pt2");
    options_.pretrained.clear();
    const std::string exported = hash_by(Parallel::kSerial, 1, form);
    EXPECT_EQ(hash_by(Parallel::kFsdp, 2, form), exported) << name;
    options_.pretrained = folder_.str() + "/w.safetensors";
    const nn::Model other = nn::make_model(options_.model, 3);
    const torch::NoGradGuard no_gradients;
    for (const auto& item : nn::named_state(*other)) torch::Tensor(item.value()).add_(1);
    nn::save_weights(*other, options_.pretrained);
    const std::string read = hash_by(Parallel::kSerial, 1, form);
    EXPECT_NE(read, exported) << name;
    EXPECT_EQ(hash_by(Parallel::kFsdp, 2, form), read) << name;
  }
}

// Each rank has all of them.
TEST_F(StartWeightsTest, HaveTheBuffersOfAShardedExportedModel) {
  options_.parallel = Parallel::kFsdp;
  options_.model = LOCKSTEP_SOURCE_DIR "/tests/formats/export/data/conv.pt2";
  auto model = nn::make_model(options_.model, 3, {.is_filled_later = true});
  const nn::Model other = nn::make_model(options_.model, 3);
  other->named_buffers()["norm.running_mean"].fill_(5);
  nn::save_weights(*other, options_.pretrained);
  start_with(model, options_);
  EXPECT_EQ(model->named_buffers()["norm.running_mean"].min().item<float>(), 5);
}

TEST_F(StartWeightsTest, AreThoseOfTheFileThatWasLookedAt) {
  options_.parallel = Parallel::kFsdp;
  options_.model = LOCKSTEP_SOURCE_DIR "/tests/formats/export/data/conv.pt2";
  const nn::Model saved = nn::make_model(options_.model, 3);
  nn::save_weights(*saved, options_.pretrained);
  auto model = nn::make_model(options_.model, 3, {.is_filled_later = true});
  const StartWeights start = start_with(model, options_);
  const auto name = model->named_parameters().keys().front();
  const torch::Tensor parameter = model->named_parameters()[name];
  const torch::NoGradGuard no_gradients;
  parameter.fill_(7);
  nn::save_weights(*model, options_.pretrained);
  start.init({{name, parameter}});
  EXPECT_TRUE(parameter.equal(saved->named_parameters()[name]));
}

TEST_F(StartWeightsTest, OfOtherClassesLeaveTheHeadFreshAndSaySo) {
  auto saved = nn::make_model("resnet18-cifar", 10), model = nn::make_model("resnet18-cifar", 20);
  const auto fresh = nn::named_state(*model)["fc.weight"].detach().clone();
  nn::save_weights(*saved, options_.pretrained);
  const StartWeights start = start_with(model, options_);
  EXPECT_EQ(start.warning,
      "weights of " + options_.pretrained +
          ":\n"
          "  kept the model's fc.weight: here [20, 512] float32, in the file [10, 512] float32\n"
          "  kept the model's fc.bias: here [20] float32, in the file [10] float32");
  EXPECT_TRUE(nn::named_state(*model)["fc.weight"].equal(fresh));
  EXPECT_TRUE(
      nn::named_state(*model)["conv1.weight"].equal(nn::named_state(*saved)["conv1.weight"]));
}

TEST_F(StartWeightsTest, OfAnotherModelAreRefused) {
  auto saved = nn::make_model("toy", 5), model = nn::make_model("mnist-small", 5);
  nn::save_weights(*saved, options_.pretrained);
  const auto message = message_of<DataError>([&] { start_with(model, options_); });
  EXPECT_THAT(message, HasSubstr("missing in the file: 0.weight"));
  EXPECT_THAT(message, HasSubstr("not in the model: net1.weight"));
}

TEST_F(StartWeightsTest, AreFrozenAfterTheyAreRead) {
  auto model = nn::make_model("resnet18-cifar", 5);
  nn::save_weights(*model, options_.pretrained);
  options_.freeze = {"bn1.*", "conv1.*"};
  const StartWeights start = start_with(model, options_);
  EXPECT_THAT(start.remark,
      HasSubstr("; frozen: 3 of 62 parameters (1856 numbers) and the statistics of 1 batch norms"));
  EXPECT_FALSE(model->parameters()[0].requires_grad());
}

struct Tied : torch::nn::Module {
  torch::Tensor a = register_parameter("a", torch::ones({2, 3}));
  torch::Tensor b = register_parameter("b", a);
  torch::Tensor c = register_parameter("c", torch::ones({5}));
};

TEST_F(StartWeightsTest, ATiedWeightIsFrozenByAnyOfItsNamesAndCountsOnce) {
  for (const std::vector<std::string>& patterns :
      std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"a", "b"}}) {
    Tied net;
    const Frozen frozen = freeze(net, patterns);
    EXPECT_EQ(frozen.parameters, 1);
    EXPECT_EQ(frozen.elements, 6);
    EXPECT_FALSE(net.a.requires_grad());
  }
}

struct OfTypes : nn::ModelImpl {
  explicit OfTypes(at::ScalarType type) {
    register_parameter("weight", torch::ones({2}, type));
    words = register_module(
        "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)));
  }
  torch::nn::Embedding words = nullptr;
};

nn::Model of_types(at::ScalarType type) {
  const std::shared_ptr<nn::ModelImpl> net = std::make_shared<OfTypes>(type);
  return nn::Model(net);
}

TEST_F(StartWeightsTest, NeedAnOptimizerThatTakesTheirGradients) {
  const auto refusal = [](const OptimizerSettings& settings) {
    nn::Model model = of_types(at::kFloat);
    TrainOptions options;
    options.optimizer = settings;
    return message_of<InvalidArgument>([&] { start_with(model, options); });
  };
  OptimizerSettings decays = default_settings(OptimizerKind::kSgd);
  decays.momentum = 0;
  decays.weight_decay = 0.1;
  for (const auto& settings : {default_settings(OptimizerKind::kAdam),
           default_settings(OptimizerKind::kAdamW), default_settings(OptimizerKind::kSgd), decays})
    EXPECT_THAT(refusal(settings),
        HasSubstr("the gradients of words.weight are sparse, which take --opt sgd --momentum 0"));
}

TEST_F(StartWeightsTest, OfSparseGradientsAreTakenByPlainSgdOrWhereTheyAreFrozen) {
  nn::Model model = of_types(at::kFloat), frozen = of_types(at::kFloat);
  TrainOptions plain, of_frozen;
  plain.optimizer = default_settings(OptimizerKind::kSgd);
  plain.optimizer.momentum = 0;
  EXPECT_NO_THROW(start_with(model, plain));
  of_frozen.freeze = {"words.*"};
  EXPECT_NO_THROW(start_with(frozen, of_frozen));
}

TEST_F(StartWeightsTest, OfTypesThatFilesDoNotHaveAreRefusedByName) {
  nn::Model model = of_types(at::kComplexDouble);
  EXPECT_THAT(message_of<InvalidArgument>([&] { start_with(model, TrainOptions()); }),
      HasSubstr("train: weight is of ComplexDouble, a type that files of weights do not have"));
  nn::Model sparse = of_types(at::kFloat);
  sparse->register_buffer("mask", at::eye(2).to_sparse());
  EXPECT_THAT(message_of<InvalidArgument>([&] { start_with(sparse, TrainOptions()); }),
      HasSubstr("train: mask is of layout Sparse, which files of weights do not have"));
}

TEST_F(StartWeightsTest, NeedNothing) {
  auto model = nn::make_model("toy", 5);
  const StartWeights start = start_with(model, TrainOptions());
  EXPECT_EQ(start.remark + start.warning, "");
}

std::vector<std::string> trained_names(const nn::Model& model) {
  std::vector<std::string> names;
  for (const auto& item : model->named_parameters()) {
    if (item.value().requires_grad()) names.push_back(item.key());
  }
  return names;
}

TEST(Freeze, TakesTheParametersOfAPattern) {
  auto model = nn::make_model("mnist-small", 10);
  const Frozen frozen = freeze(*model, {"0.*"});
  EXPECT_EQ(frozen.parameters, 2);
  EXPECT_EQ(frozen.elements, 320);
  EXPECT_THAT(trained_names(model), ElementsAre("4.weight", "4.bias", "6.weight", "6.bias"));
}

TEST(Freeze, TakesAllThatAnyPatternMatches) {
  auto model = nn::make_model("mnist-small", 10);
  EXPECT_EQ(freeze(*model, {"0.*", "*.bias", "?.bias"}).parameters, 4);
  EXPECT_THAT(trained_names(model), ElementsAre("4.weight", "6.weight"));
}

TEST(Freeze, LetsAStarStandForDots) {
  auto model = nn::make_model("resnet18-cifar", 10);
  freeze(*model, {"[bcl]*"});
  EXPECT_THAT(trained_names(model), ElementsAre("fc.weight", "fc.bias"));
}

TEST(Freeze, RefusesAPatternThatMatchesNothing) {
  auto model = nn::make_model("resnet18-cifar", 10);
  EXPECT_EQ(message_of<InvalidArgument>([&] {
    freeze(*model, {"fc.*", "layer5.*"});
  }),
      "train: --freeze matches no parameter: layer5.*; their names are conv1.*, bn1.*, layer1.*, "
      "layer2.*, layer3.*, layer4.*, fc.*, such as conv1.weight");
  EXPECT_EQ(trained_names(model).size(), model->parameters().size());
}

TEST(Freeze, RefusesToLeaveNothing) {
  auto model = nn::make_model("toy", 5);
  EXPECT_THAT(message_of<InvalidArgument>([&] { freeze(*model, {"*"}); }),
      HasSubstr("leaves no parameter"));
}

TEST(Freeze, KeepsBatchNormsInEvaluationThatAreWhollyFrozen) {
  auto model = nn::make_model("resnet18-cifar", 10);
  const Frozen frozen = freeze(*model, {"layer1.*", "bn1.weight"});
  EXPECT_EQ(frozen.norms.size(), 4U);
  model->train();
  keep_in_evaluation(frozen);
  for (const auto& item : model->named_modules()) {
    if (item.value()->as<torch::nn::BatchNorm2d>() == nullptr) continue;
    EXPECT_EQ(item.value()->is_training(), !item.key().starts_with("layer1.")) << item.key();
  }
}

TEST(Freeze, KnowsTheNormsOfAnExportedProgram) {
  auto model = nn::make_model(LOCKSTEP_SOURCE_DIR "/tests/formats/export/data/conv.pt2", 3);
  const Frozen frozen = freeze(*model, {"norm.*"});
  EXPECT_EQ(frozen.norms.size(), 1U);
  model->train();
  keep_in_evaluation(frozen);
  model->forward(torch::randn({2, 1, 4, 4}));
  EXPECT_EQ(model->named_buffers()["norm.num_batches_tracked"].item<int>(), 0);
}

}  // namespace
}  // namespace lockstep
