// The flags of `lockstep train` about optimizer, learning rate, averages and the best epoch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsed_flags.h"

#include "lockstep/train/options/run_configuration.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::parsed;
using testing::refusal;

TEST(LearningFlags, NoneChangeNothing) {
  const TrainOptions options = parsed("");
  EXPECT_EQ(options.optimizer.schedule.kind, LrScheduleKind::kConstant);
  EXPECT_EQ(options.optimizer.weight_decay_on, DecayOn::kAll);
  EXPECT_EQ(options.grad_accum_steps, 1);
  EXPECT_EQ(options.smoothing, 0);
  EXPECT_FALSE(options.ema);
  EXPECT_EQ(options.eval_metric, EvalMetric::kLoss);
}

TEST(LearningFlags, SchedulesAreRead) {
  const LrSettings cosine =
      parsed("--sched cosine --warmup-epochs 1 --warmup-lr 0.0001 --min-lr 1e-6 --sched-on-updates")
          .optimizer.schedule;
  EXPECT_EQ(cosine.kind, LrScheduleKind::kCosine);
  EXPECT_EQ(cosine.warmup_epochs, 1);
  EXPECT_EQ(cosine.warmup_lr, 0.0001);
  EXPECT_EQ(cosine.min_lr, 1e-6);
  EXPECT_TRUE(cosine.on_updates);
  const LrSettings several =
      parsed("--sched multistep --decay-milestones 30,60,90 --decay-rate 0.2").optimizer.schedule;
  EXPECT_THAT(several.decay_milestones, ElementsAre(30, 60, 90));
  EXPECT_EQ(several.decay_rate, 0.2);
  const LrSettings step =
      parsed("--sched step --decay-epochs 4 --warmup-steps 9").optimizer.schedule;
  EXPECT_EQ(step.decay_epochs, 4);
  EXPECT_EQ(step.warmup_steps, 9);
  EXPECT_EQ(parsed("--sched poly --poly-power 0.5").optimizer.schedule.power, 0.5);
}

TEST(LearningFlags, OneCycleAndPlateauAreRead) {
  const LrSettings cycle =
      parsed("--sched onecycle --pct-start 0.4 --div-factor 10 --final-div-factor 100")
          .optimizer.schedule;
  EXPECT_EQ(cycle.pct_start, 0.4);
  EXPECT_EQ(cycle.div_factor, 10);
  EXPECT_EQ(cycle.final_div_factor, 100);
  const LrSettings plateau =
      parsed("--sched plateau --patience-epochs 3 --cooldown-epochs 2").optimizer.schedule;
  EXPECT_EQ(plateau.patience_epochs, 3);
  EXPECT_EQ(plateau.cooldown_epochs, 2);
}

TEST(LearningFlags, TheRestIsRead) {
  const TrainOptions options = parsed(
      "--weight-decay 0.1 --weight-decay-on weights --grad-accum-steps 4 --smoothing 0.1 "
      "--model-ema "
      "--model-ema-decay 0.99 --model-ema-warmup --eval-metric top5");
  EXPECT_EQ(options.optimizer.weight_decay_on, DecayOn::kWeights);
  EXPECT_EQ(options.grad_accum_steps, 4);
  EXPECT_EQ(options.smoothing, 0.1);
  ASSERT_TRUE(options.ema);
  EXPECT_EQ(options.ema->decay, 0.99);
  EXPECT_TRUE(options.ema->warmup);
  EXPECT_EQ(options.eval_metric, EvalMetric::kTop5);
  EXPECT_EQ(parsed("--model-ema").ema->decay, 0.9998);
}

TEST(LearningFlags, EpsilonAndBetasAreRead) {
  const auto none = parsed("--opt adamw").optimizer;
  EXPECT_FALSE(none.eps);
  EXPECT_FALSE(none.betas);
  const auto given = parsed("--opt-betas 0,0.95 --opt-eps 1e-6 --opt adamw").optimizer;
  EXPECT_EQ(given.eps, 1e-6);
  ASSERT_TRUE(given.betas);
  EXPECT_EQ(given.betas->first, 0);
  EXPECT_EQ(given.betas->second, 0.95);
  EXPECT_EQ(given.weight_decay, 0.01) << "adamw's own stays";
}

TEST(LearningFlags, WrongEpsilonsAndBetasAreRefused) {
  for (const char* eps : {"0", "-1e-08"})
    EXPECT_EQ(refusal(concat("--opt-eps ", eps)),
        concat("train: --opt-eps must be a number above 0: ", eps));
  for (const char* betas : {"0.9", "0.9,", "0.9,0.99,0.999", "a,0.9", "0.9;0.99"})
    EXPECT_EQ(refusal(concat("--opt-betas ", betas)),
        concat("train: --opt-betas must be two numbers, such as 0.9,0.999: ", betas));
  for (const char* betas : {"1,0.999", "0.9,1", "-0.1,0.999", "0.9,-0.1", "nan,0.9", "0.9,inf"})
    EXPECT_THAT(refusal(concat("--opt-betas ", betas)), HasSubstr("--opt-betas must be")) << betas;
  EXPECT_EQ(refusal("--opt-betas 0.9,1.5"),
      "train: --opt-betas must be numbers of at least 0 and below 1: 1.5");
  EXPECT_EQ(refusal("--opt sgd --opt-eps 1e-8"),
      "train: --opt-eps is for --opt adam and adamw; it is sgd");
  EXPECT_EQ(refusal("--opt sgd --opt-betas 0.9,0.999"),
      "train: --opt-betas is for --opt adam and adamw; it is sgd");
}

TEST(LearningFlags, UnknownWordsAreRefusedWithTheNearest) {
  EXPECT_THAT(refusal("--sched cosin"),
      AllOf(HasSubstr("--sched must be one of constant, step"), HasSubstr("did you mean cosine")));
  EXPECT_THAT(refusal("--weight-decay-on bias"), HasSubstr("--weight-decay-on must be one of"));
  EXPECT_THAT(refusal("--eval-metric top3"), HasSubstr("--eval-metric must be one of"));
}

TEST(LearningFlags, SmoothingIsForCrossEntropy) {
  EXPECT_EQ(refusal("--smoothing 0.1 --loss mse"),
      "train: --smoothing is for --loss cross-entropy, not for mse");
  EXPECT_EQ(parsed("--smoothing 0.1 --loss cross-entropy").smoothing, 0.1);
}

TEST(LearningFlags, MilestonesMustBeAListOfEpochs) {
  for (const char* text : {"30,", ",30", "30;60", "a", "30,,60", "99999999999999999999", "3_4"})
    EXPECT_THAT(refusal(concat("--sched multistep --decay-milestones ", text)),
        HasSubstr("--decay-milestones must be a comma-separated list of epochs"))
        << text;
}

TEST(LearningFlags, ImpossibleValuesAreRefused) {
  EXPECT_EQ(refusal("--grad-accum-steps 0"),
      "train: --grad-accum-steps must be a whole number from 1 to 1000000: 0");
  EXPECT_EQ(
      refusal("--smoothing 1"), "train: --smoothing must be a number of at least 0 and below 1: 1");
  EXPECT_THAT(refusal("--model-ema --model-ema-decay 1.5"),
      HasSubstr("--model-ema-decay must be a number of at least 0 and below 1"));
  EXPECT_EQ(refusal("--model-ema-decay 0.9"), "train: --model-ema-decay needs --model-ema");
  EXPECT_EQ(refusal("--model-ema-warmup"), "train: --model-ema-warmup needs --model-ema");
  EXPECT_THAT(
      refusal("--sched plateau --val-interval 0"), HasSubstr("--sched plateau needs evaluations"));
  EXPECT_THAT(refusal("--sched step"), HasSubstr("needs --decay-epochs"));
}

TEST(LearningFlags, StandInTheRunsConfiguration) {
  const std::string toml =
      config_toml(parsed("--sched multistep --decay-milestones 3,5 --warmup-epochs 2 --smoothing "
                         "0.1 --model-ema --grad-accum-steps 2"));
  EXPECT_THAT(
      toml, AllOf(HasSubstr("sched = \"multistep\"\n"), HasSubstr("decay-milestones = \"3,5\"\n"),
                HasSubstr("warmup-epochs = 2\n"), HasSubstr("weight-decay-on = \"all\"\n"),
                HasSubstr("smoothing = 0.1\n"), HasSubstr("grad-accum-steps = 2\n"),
                HasSubstr("model-ema = true\nmodel-ema-decay = 0.9998\n"),
                HasSubstr("eval-metric = \"loss\"\n"), Not(HasSubstr("min-lr")),
                Not(HasSubstr("model-ema-warmup")), Not(HasSubstr("opt-eps")),
                Not(HasSubstr("opt-betas"))));
  EXPECT_THAT(config_toml(parsed("--opt-eps 1e-6 --opt-betas 0.8,0.95")),
      AllOf(HasSubstr("opt-eps = 1e-06\n"), HasSubstr("opt-betas = \"0.8,0.95\"\n")));
}

}  // namespace
}  // namespace lockstep
