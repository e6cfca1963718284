#include "lockstep/train/record/best_weights.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <system_error>

#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"
#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

nn::NamedTensors weights_of(double value) {
  nn::NamedTensors weights("Tensor");
  weights.insert("weight", torch::full({1, 3}, value));
  return weights;
}

double value_in(const std::filesystem::path& file) {
  torch::nn::Linear net(torch::nn::LinearOptions(3, 1).bias(false));
  nn::load_weights(*net, file);
  return net->weight.mean().item<double>();
}

class BestWeightsOnAFullDisk : public ::testing::Test {
 protected:
  std::string save_without_room(const nn::NamedTensors& weights) {
    const testing::FileSizeLimit limit(10);
    return best_.save(weights, {{"epoch", "1"}});
  }

  testing::TemporaryFolder folder_;
  BestWeights best_{folder_.str() + "/best.safetensors"};
};

TEST_F(BestWeightsOnAFullDisk, KeepsWhatTheyWere) {
  const nn::NamedTensors weights = weights_of(1);
  EXPECT_THAT(
      save_without_room(weights), AllOf(HasSubstr("best.safetensors"), HasSubstr("too large")));
  EXPECT_FALSE(std::filesystem::exists(best_.file()));
  weights["weight"].fill_(7);  // training goes on
  best_.finish();
  EXPECT_EQ(value_in(best_.file()), 1);
}

TEST_F(BestWeightsOnAFullDisk, ABetterEpochTakesTheirPlace) {
  EXPECT_NE(save_without_room(weights_of(1)), "");
  EXPECT_EQ(best_.save(weights_of(2), {{"epoch", "2"}}), "");
  best_.finish();
  EXPECT_EQ(value_in(best_.file()), 2);
}

TEST_F(BestWeightsOnAFullDisk, GivesBackWhatItKeepsOrWrote) {
  const nn::NamedTensors room = weights_of(0);
  EXPECT_NE(save_without_room(weights_of(1)), "");
  best_.load(room, {{"epoch", "1"}});
  EXPECT_EQ(room["weight"].mean().item<double>(), 1);
  EXPECT_EQ(best_.save(weights_of(2), {{"epoch", "2"}}), "");
  best_.load(room, {{"epoch", "2"}});
  EXPECT_EQ(room["weight"].mean().item<double>(), 2);
}

TEST_F(BestWeightsOnAFullDisk, GivesBackNothingOfAnotherEpoch) {
  const nn::NamedTensors room = weights_of(0);
  EXPECT_THROW(best_.load(room, {{"epoch", "1"}}), DataError) << "there is no file";
  EXPECT_EQ(best_.save(weights_of(2), {{"epoch", "2"}}), "");
  EXPECT_THROW(best_.load(room, {{"epoch", "1"}}), DataError);
  EXPECT_EQ(room["weight"].mean().item<double>(), 0);
}

TEST_F(BestWeightsOnAFullDisk, SaysAtTheEndThatItStillIs) {
  EXPECT_NE(save_without_room(weights_of(1)), "");
  const testing::FileSizeLimit limit(10);
  EXPECT_THROW(best_.finish(), std::system_error);
}

}  // namespace
}  // namespace lockstep
