#include "bench/cli/plan/offers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/profiles.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

plan::ModelProfile made_profile() {
  plan::ModelProfile profile = plan::testing::uniform(4);
  profile.flops = 24.54e9;
  return profile;
}

PlanCommand command_of(std::vector<std::string> words) {
  words.insert(words.end(), {"--profile", "net.json", "--batch", "64", "--samples", "1000"});
  return *parse_plan(words);
}

double rate_of(const Offer& offer) { return 64 / offer.profile.step_seconds(64); }

TEST(Offers, HaveEachDevicesPriceMemoryAndLinks) {
  const auto offers =
      offers_of(made_profile(), command_of({"--device", "T4,H100", "--price", "T4=0.53,H100=11"}));
  ASSERT_EQ(offers.size(), 2U);
  const plan::Machine &t4 = offers[0].question.machine, &h100 = offers[1].question.machine;
  EXPECT_EQ(t4.device, "T4");
  EXPECT_EQ(t4.place_price, 0.53);
  EXPECT_EQ(h100.place_price, 11);
  EXPECT_EQ(t4.memory_bytes, plan::device_of("T4").memory_bytes);
  EXPECT_EQ(h100.within.bytes_per_second, plan::device_of("H100").within.bytes_per_second);
}

TEST(Offers, CostWhatTheirPlacesCostForAnHour) {
  const auto offers = offers_of(made_profile(),
      command_of({"--device", "T4", "--price", "T4=0.5", "--places", "4", "--ways", "ddp"}));
  const auto choice = plan::answer(offers[0].profile, offers[0].question).choices.at(0);
  EXPECT_DOUBLE_EQ(choice.cost, choice.hours * 4 * 0.5);
}

TEST(Offers, OfANodesPriceHaveItForAll) {
  const auto offers = offers_of(made_profile(), command_of({"--device", "T4,L4", "--price", "3"}));
  for (const Offer& offer : offers) {
    EXPECT_EQ(offer.question.machine.price, 3);
    EXPECT_EQ(offer.question.machine.place_price, 0);
  }
}

TEST(Offers, TakeTheRateThatIsSaidOfADevice) {
  plan::ModelProfile profile = made_profile();
  for (plan::LayerCurves& layer : profile.layers)
    layer.activation_bytes = 0;  // by arithmetic alone
  const auto offers = offers_of(
      profile, command_of({"--device", "T4,A100,H100", "--device-rate", "T4=150,H100=2000"}));
  EXPECT_NEAR(rate_of(offers.at(0)), 150, 1e-6);
  EXPECT_NEAR(rate_of(offers.at(2)), 2000, 1e-6);
  EXPECT_NEAR(rate_of(offers.at(1)), 909, 20) << "by its published one";
  EXPECT_FALSE(offers[0].profile.is_estimated) << "it was said";
  EXPECT_THAT(offers[0].profile.source, StartsWith("150 samples/s with batches of 64, as"));
  EXPECT_THAT(offers[1].profile.source, ::testing::Not(HasSubstr("--device-rate")));
}

TEST(Offers, KeepWhatTheQuestionSays) {
  const auto offers = offers_of(
      made_profile(), command_of({"--device", "T4,A100", "--memory", "8G", "--within", "1GB,5us"}));
  for (const Offer& offer : offers) {
    EXPECT_EQ(offer.question.machine.memory_bytes, 8.0 * (1 << 30));
    EXPECT_EQ(offer.question.machine.within.bytes_per_second, 1e9);
    EXPECT_DOUBLE_EQ(offer.question.machine.within.latency, 5e-6);
  }
  plan::ModelProfile profile = made_profile();
  profile.within = plan::parse_link("2GB,1us");
  const Offer here = offers_of(profile, command_of({})).at(0);
  EXPECT_EQ(here.question.machine.within.bytes_per_second, 2e9) << "that of the profile";
  EXPECT_EQ(here.question.machine.device, "");
  const Offer faster = offers_of(profile, command_of({"--within", "4GB"})).at(0);
  EXPECT_EQ(faster.question.machine.within.bytes_per_second, 4e9);
  EXPECT_DOUBLE_EQ(faster.question.machine.within.latency, 1e-6) << "that of the profile";
}

TEST(Precision, OfADeviceIsOneThatItHasARateFor) {
  const auto in = [](const std::string& of_profile, const std::vector<std::string>& words) {
    plan::ModelProfile profile = made_profile();
    profile.precision = of_profile;
    return in_asked_precision(profile, command_of(words)).precision;
  };
  EXPECT_EQ(in("32", {"--device", "A100", "--precision", "bf16-mixed"}), "bf16-mixed");
  EXPECT_EQ(in("bf16-mixed", {"--device", "A100"}), "bf16-mixed");
  EXPECT_EQ(in("float64", {}), "float64") << "on its own device all is measured";
  const auto refusal = [&](const std::string& of_profile, const std::vector<std::string>& words) {
    return testing::message_of<InvalidArgument>([&] { in(of_profile, words); });
  };
  EXPECT_THAT(refusal("float64", {"--device", "A100"}), HasSubstr("is in \"float64\", and the"));
  EXPECT_THAT(refusal("float64", {"--device", "A100", "--precision", "32"}),
      HasSubstr("profile the model in one of these"));
  EXPECT_THAT(refusal("32", {"--device", "A100", "--precision", "bf16"}),
      HasSubstr("--precision is 32, bf16-mixed, 16-mixed, not \"bf16\""));
}

// What a profile of --confirm is asked about is trained as it was measured.
TEST(Confirming, TrainsAsTheProfileWasMeasured) {
  plan::ModelProfile profile = made_profile();
  const auto trained = [&](const std::vector<std::string>& words) {
    PlanCommand command = command_of(words);
    train_as_measured(profile, command);
    return command;
  };
  EXPECT_EQ(trained({}).data, "mock:constant") << "no word of it in the profile";
  EXPECT_EQ(trained({}).cores_a_place, 1);
  profile.training = plan::MeasuredTraining{"nets.so", "mnist:data", 2, {"--opt", "adam"}};
  const PlanCommand as_measured = trained({"--confirm", "2"});
  EXPECT_EQ(as_measured.plugin, "nets.so");
  EXPECT_EQ(as_measured.data, "mnist:data");
  EXPECT_EQ(as_measured.cores_a_place, 2);
  EXPECT_THAT(as_measured.train_flags, ::testing::ElementsAre("--opt", "adam"));
  const PlanCommand elsewhere =
      trained({"--confirm", "2", "--data", "mnist:/moved", "--cores-a-place", "1"});
  EXPECT_EQ(elsewhere.data, "mnist:/moved");
  EXPECT_EQ(elsewhere.cores_a_place, 1);
  PlanCommand other = command_of({});
  other.train_flags = {"--opt", "sgd"};
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { train_as_measured(profile, other); }),
      HasSubstr("was measured with -- --opt adam, which is what --confirm trains"));
}

}  // namespace
}  // namespace lockstep::cli
