#include "lockstep/plan/model_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/plan/profiles.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::plan {
namespace {

using testing::uniform;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(ModelProfile, ComesBackFromItsFile) {
  ModelProfile profile = uniform(3);
  profile.layers[1].forward = CostCurve({{8, 0.1}, {32, 0.3}});
  profile.rest = testing::line(0.001, 0.0001);
  profile.optimizer = 0.25;
  profile.state_copies = 2;
  profile.flops = 1e6;
  profile.product_flops = 4e5;
  profile.overheads = {.hand_over = CostCurve({{4, 0.01}, {8, 0.02}}),
      .threads = CostCurve({{4, 0.03}}),
      .socket_core = 1e-9,
      .gradient_core = 2e-10,
      .replica_bytes = 3e7,
      .socket_bytes = 4e7};
  profile.company = {.compute = {1, 1.5}, .memory = {1, 2}, .cores = 2, .crowded = 1.25};
  profile.process_bytes = 3e8;
  profile.is_measured = true;
  profile.within = parse_link("2GB,10us");
  profile.training = MeasuredTraining{"nets.so", "mnist:data", 2, {"--opt", "a b"}};
  const std::string text = profile_text(profile);
  const ModelProfile again = parse_profile(text, "p.json");
  EXPECT_EQ(profile_text(again), text);
  EXPECT_EQ(again.step_seconds(16), profile.step_seconds(16));
  EXPECT_EQ(again.parameter_bytes(), 1200);
  EXPECT_EQ(again.activation_bytes(), 30);
  EXPECT_EQ(again.product_flops, 4e5);
  EXPECT_EQ(again.overheads.hand_over(8), 0.02);
  EXPECT_EQ(again.overheads.gradient_core, 2e-10);
  EXPECT_EQ(again.overheads.replica_bytes, 3e7);
  EXPECT_EQ(again.overheads.socket_bytes, 4e7);
  EXPECT_EQ(again.company.crowded, 1.25);
  EXPECT_TRUE(again.knows_within);
  EXPECT_EQ(again.within.bytes_per_second, 2e9);
  ASSERT_TRUE(again.training);
  EXPECT_EQ(again.training->plugin, "nets.so");
  EXPECT_EQ(again.training->data, "mnist:data");
  EXPECT_EQ(again.training->cores_a_place, 2);
  EXPECT_EQ(again.training->flags, (std::vector<std::string>{"--opt", "a b"}));
}

TEST(ModelProfile, OfAPlaceMeasuredAloneHasNoLink) {
  ModelProfile profile = uniform(1);
  profile.knows_within = false;
  profile.flops = 1e9;
  const std::string text = profile_text(profile);
  EXPECT_THAT(text, ::testing::HasSubstr("\"within\": null"));
  const ModelProfile again = parse_profile(text, "p.json");
  EXPECT_FALSE(again.knows_within);
  EXPECT_TRUE(on_device(again, device_of("A100")).knows_within) << "its data sheet tells";
}

// Older programs wrote so of a place that was measured alone.
TEST(ModelProfile, DoesNotKnowALinkThatCostsNothing) {
  const std::string text = profile_text(uniform(1));
  ASSERT_THAT(text, ::testing::HasSubstr("\"bytes_per_second\": 0.0"));
  const ModelProfile old = parse_profile(text, "p.json");
  EXPECT_FALSE(old.knows_within);
  EXPECT_THAT(why_not({.replicas = 2}, old, 2, testing::free_machine(1, 2)),
      ::testing::HasSubstr("says nothing about several places of a node; give their link"));
}

TEST(ModelProfile, OfAnOlderFileHasNoMatrixProducts) {
  const std::string text = profile_text(uniform(1));
  EXPECT_EQ(
      parse_profile(replaced(text, " \"product_flops\": 0.0,\n", ""), "p.json").product_flops, 0);
}

TEST(ModelProfile, RefusesWhatCannotBeACost) {
  const std::string text = profile_text(uniform(1));
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return ::lockstep::testing::message_of<DataError>(
        [&] { parse_profile(replaced(text, from, to), "p.json"); });
  };
  EXPECT_THAT(refusal("\"batch\": 1.0", "\"batch\": 0"), ::testing::HasSubstr("p.json"));
  EXPECT_THAT(refusal("\"seconds\": 1.0", "\"seconds\": -1"), ::testing::HasSubstr("seconds"));
  EXPECT_THAT(refusal("\"v\": 3", "\"v\": 1"), ::testing::HasSubstr("v"));
  EXPECT_THAT(refusal("\"crowded\": 1.0", "\"crowded\": 0.5"), ::testing::HasSubstr("take turns"));
  EXPECT_THAT(refusal("400.0", "-400.0"), ::testing::HasSubstr("a parameter of -400"));
  for (const char* huge : {"1e308", "1e10"})
    EXPECT_THAT(refusal("\"seconds\": 1.0", std::string("\"seconds\": ") + huge),
        ::testing::HasSubstr("a layer's time"));
  EXPECT_THAT(refusal("\"product_flops\": 0.0", "\"product_flops\": 1.0"),
      ::testing::HasSubstr("matrix products' arithmetic of 1; it must be from 0 to 0"));
  EXPECT_THAT(refusal("400.0", "1e300"), ::testing::HasSubstr("a parameter of 1e+300"));
  EXPECT_THROW(parse_profile("{}", "p.json"), DataError);
  EXPECT_THROW(parse_profile(text.substr(0, text.size() / 2), "p.json"), DataError);
}

TEST(ModelProfile, OfAnotherDeviceKeepsItsShares) {
  ModelProfile profile = uniform(2);
  profile.optimizer = 2;
  const ModelProfile faster = profile.scaled_to(3, 2);
  EXPECT_DOUBLE_EQ(faster.step_seconds(3), 2);
  EXPECT_DOUBLE_EQ(faster.layers[0].forward(3) / faster.optimizer, 1.5);
}

using ::lockstep::testing::message_of;
using ::testing::HasSubstr;

// In fp32.
void set_activations(ModelProfile& profile, double bytes) {
  for (LayerCurves& layer : profile.layers)
    layer.activation_bytes = bytes / static_cast<double>(profile.layers.size());
}

// ResNet50's.
ModelProfile heavy_profile() {
  ModelProfile profile = uniform(16);
  profile.flops = 24.54e9;
  set_activations(profile, 94.1e6);
  profile.state_copies = 1;
  return profile;
}

TEST(Device, ReachesThePublishedRateWithLargeBatches) {
  const ModelProfile moved = on_device(heavy_profile(), device_of("v100"));
  EXPECT_NEAR(128 / moved.step_seconds(128), 380.44, 0.5);
  EXPECT_FALSE(moved.is_measured);
  EXPECT_THAT(moved.source, HasSubstr("DeepLearningExamples"));
  check_profile(moved);
}

// Of convolutions passes over memory take the most, as far as a profile knows them.
TEST(Device, TrainsConvolutionsByTheirArithmeticAndTheirActivations) {
  const auto rate = [](double flops, double bytes, const std::string& precision) {
    ModelProfile profile = heavy_profile();
    profile.flops *= flops;
    set_activations(profile, 94.1e6 * bytes);
    return 128 / on_device(in_precision(profile, precision), device_of("V100")).step_seconds(128);
  };
  EXPECT_NEAR(rate(1, 0.5, "32"), 380.44 / 0.65, 1);
  EXPECT_NEAR(rate(2, 1, "32"), 380.44 / 1.3, 1);
  EXPECT_NEAR(rate(2, 0, "32"), 380.44 / 2, 1);
  EXPECT_NEAR(rate(1, 1, "16-mixed"), 893.09, 2);
}

TEST(Device, GainsNothingFromBatchesBelowTheStartOfItsKernels) {
  ModelProfile light = heavy_profile();
  light.flops = 1e6;
  set_activations(light, 4000);
  const ModelProfile moved = on_device(light, device_of("V100"));
  EXPECT_DOUBLE_EQ(moved.step_seconds(1), moved.step_seconds(8));
  EXPECT_GT(moved.step_seconds(1 << 20), 2 * moved.step_seconds(8));
}

TEST(Device, KeepsTheSharesOfTheLayers) {
  ModelProfile profile = heavy_profile();
  profile.layers[3].forward = CostCurve({{1, 5}});
  const ModelProfile moved = on_device(profile, device_of("A100"));
  EXPECT_FALSE(moved.is_estimated) << "trainings are published";
  EXPECT_TRUE(on_device(profile, device_of("L4")).is_estimated);
  EXPECT_NEAR(moved.layers[3].forward(256) / moved.layers[4].forward(256), 5, 1e-9);
}

// 384 tokens of BERT-Large, of which DeepLearningExamples trains 12 a second on a V100.
ModelProfile transformer() {
  ModelProfile profile = heavy_profile();
  profile.flops = profile.product_flops = 384 * (6 * 302e6 + 12 * 24 * 1024 * 384.0);
  return profile;
}

TEST(Device, TrainsTransformersAtTheirRate) {
  const ModelProfile moved = on_device(transformer(), device_of("V100"));
  EXPECT_NEAR(64 / moved.step_seconds(64), 12, 0.01);
  EXPECT_THAT(moved.source, HasSubstr("BERT-Large"));
  ModelProfile both = transformer();
  both.flops += heavy_profile().flops;
  set_activations(both, 94.1e6 * both.flops / heavy_profile().flops);  // whose share is ResNet50's
  const ModelProfile mixed = on_device(both, device_of("V100"));
  EXPECT_NEAR(mixed.step_seconds(64) / 64, 1.0 / 12 + 1 / 380.44, 1e-5);
}

TEST(Device, IsLessCertainForTransformersAndWithoutAPublishedTraining) {
  const auto width = [](const ModelProfile& profile, const char* device) {
    const Prediction step = predict(on_device(profile, device_of(device)), {}, {}, 64);
    return step.most_seconds() / step.least_seconds();
  };
  EXPECT_GT(width(transformer(), "A100"), 1.5 * width(heavy_profile(), "A100"));
  EXPECT_GT(width(heavy_profile(), "L4"), 2 * width(heavy_profile(), "A100"));
}

TEST(Device, OfEachKindCanBePlannedFor) {
  for (const Device& device : known_devices()) {
    for (const char* const precision : {"32", "bf16-mixed"}) {
      ModelProfile profile = heavy_profile();
      profile.precision = precision;
      const ModelProfile moved = on_device(profile, device);
      const Machine machine{.places = 4, .within = moved.within};
      EXPECT_GT(predict(moved, machine, {.replicas = 4}, 128).samples_per_second(),
          predict(moved, machine, {}, 128).samples_per_second())
          << device.name;
    }
  }
}

TEST(Device, ThatIsNotKnownIsRefused) {
  EXPECT_THAT(message_of<InvalidArgument>([] { device_of("V10"); }), HasSubstr("V100"));
  EXPECT_THAT(message_of<InvalidArgument>([] { on_device(uniform(2), device_of("T4")); }),
      HasSubstr("flops"));
}

}  // namespace
}  // namespace lockstep::plan
