// Runs the example programs as a user would and checks what they print.

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "run_example.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {
namespace {

using testing::numbers_in;
using testing::run_line;

// The losses are those of PyTorch 2.15 with the whole model and the same seed:
// tests/conformance/toy_training.py.
TEST(Examples, HelloSaysOnHowManyRanksItTrainedAndWhatCameOfIt) {
  const testing::TemporaryFolder folder;
  const std::string line =
      "cd " + folder.str() + " && lockstep run --nproc-per-node 2 -- $(command -v hello)";
  const auto [status, output] = run_line(line);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, ::testing::HasSubstr("ranks: 2\n"));
  const auto losses = numbers_in(output, "epoch \\d: last loss ([0-9.]+)");
  ASSERT_EQ(losses.size(), 2U) << output;
  EXPECT_THAT(losses, ::testing::Each(::testing::Lt(2.0))) << "of ten classes, untrained: 2.3";
  EXPECT_THAT(output, ::testing::HasSubstr("trained: the snapshots are in hello-run\n"));
  const auto again = run_line(line);
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_TRUE(numbers_in(again.output, "epoch \\d: last loss ([0-9.]+)").empty()) << again.output;
  EXPECT_THAT(again.output, ::testing::HasSubstr("trained: the snapshots are in hello-run\n"));
}

// SIGTERM comes where the first lines of metrics are, within an epoch.
TEST(Examples, OwnLoopStoppedWithinAnEpochGoesOnAsIfItHadNotBeen) {
  const testing::TemporaryFolder folder;
  const std::string run = "lockstep run --nproc-per-node 2 -- $(command -v own_loop) ";
  const std::string whole = folder.file("whole"), parted = folder.file("parted");
  const auto undisturbed = run_line(run + whole);
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.output;
  const auto stopped = run_line(run + parted + " & pid=$!\nuntil test -s " + parted +
                                "/metrics.jsonl; do sleep 0.01; done\nkill -TERM $pid; wait $pid");
  ASSERT_EQ(stopped.status, 75) << stopped.output;
  EXPECT_THAT(stopped.output, ::testing::ContainsRegex("stopped after [1-9][0-9]* samples"));
  EXPECT_FALSE(std::filesystem::exists(parted + "/model.safetensors"));
  const auto report = run_line("lockstep report " + parted);
  EXPECT_THAT(report.output, ::testing::HasSubstr("stopped by signal")) << report.output;
  const auto resumed = run_line(run + parted);
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  for (const char* weights : {"/model.safetensors", "/model-ema.safetensors"})
    EXPECT_EQ(testing::contents(parted + weights), testing::contents(whole + weights)) << weights;
  EXPECT_NE(testing::contents(whole + "/model.safetensors"),
      testing::contents(whole + "/model-ema.safetensors"));
}

TEST(Examples, ReportMakesAPageOfOwnLoop) {
  const testing::TemporaryFolder folder;
  const auto trained = run_line("own_loop " + folder.file("run"));
  ASSERT_EQ(trained.status, 0) << trained.output;
  EXPECT_THAT(
      numbers_in(trained.output, "accuracy ([0-9.]+)"), ::testing::Each(::testing::Gt(0.7)));
  const auto report = run_line("lockstep report " + folder.file("run"));
  EXPECT_EQ(report.status, 0) << report.output;
  EXPECT_THAT(report.output, ::testing::HasSubstr("own-net on fashion-mnist, ddp"));
  EXPECT_THAT(report.output, ::testing::HasSubstr("stopped by epochs at step "));
  const std::string page = testing::contents(folder.file("run") + "/report.html");
  EXPECT_THAT(page, ::testing::HasSubstr("all epochs done"));
  EXPECT_THAT(page, ::testing::HasSubstr("averaged weights"));
  EXPECT_FALSE(std::filesystem::is_empty(folder.file("run") + "/tensorboard"));
}

TEST(Examples, ToyOnTwoPlacesLearnsAsPyTorch) {
  const auto [status, output] = run_line("toy_two_places --steps 3");
  EXPECT_EQ(status, 0) << output;
  const auto losses = numbers_in(output, "step \\d+: loss ([0-9.]+)");
  ASSERT_EQ(losses.size(), 3U) << output;
  const std::vector<double> expected = {1.490923, 1.490383, 1.489843};
  for (std::size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(losses[step], expected[step], 2e-6) << output;
}

TEST(Examples, EveryWayLearnsTheSame) {
  const auto [status, output] = run_line("every_way");
  EXPECT_EQ(status, 0) << output;
  const auto losses = numbers_in(output, "loss ([0-9.]+)");
  ASSERT_EQ(losses.size(), 9U) << output;
  EXPECT_THAT(losses, ::testing::Each(::testing::DoubleNear(losses.front(), 2e-6))) << output;
}

TEST(Examples, ModelParallelGivesTheLossOfOnePlace) {
  const auto [status, output] = run_line("model_parallel --batch-size 2 --image-size 32 --steps 2");
  EXPECT_EQ(status, 0) << output;
  EXPECT_EQ(numbers_in(output, "places?: +([0-9.]+) s a step").size(), 2U) << output;
  const auto differences = numbers_in(output, "losses differ by ([0-9.e+-]+)");
  ASSERT_EQ(differences.size(), 1U) << output;
  EXPECT_LT(differences[0], 1e-5) << output;
}

TEST(Examples, PipelinePrintsALineForEachSplitSize) {
  for (const std::string schedule : {"gpipe", "1f1b"}) {
    const auto [status, output] = run_line(
        "pipeline --batch-size 6 --image-size 32 --split-size 2,6 --repeats 1 --schedule " +
        schedule);
    EXPECT_EQ(status, 0) << output;
    EXPECT_THAT(numbers_in(output, "split size +(\\d+)"), ::testing::ElementsAre(2, 6)) << output;
    EXPECT_THAT(numbers_in(output, "(\\d+) micro-batches"), ::testing::ElementsAre(3, 1)) << output;
    EXPECT_THAT(numbers_in(output, "mean ([0-9.]+) s, standard deviation 0.000 s"),
        ::testing::Each(::testing::Gt(0)));
  }
}

TEST(Examples, AFlagThatIsNotThereIsRefused) {
  const auto [status, output] = run_line("pipeline --split 3");
  EXPECT_EQ(status, 2) << output;
  EXPECT_THAT(output, ::testing::HasSubstr("--split-size 1,2,3,4,6,12")) << output;
}

TEST(Examples, ImagesAreLearntAndTheWeightsGoOn) {
  const testing::TemporaryFolder folder;
  const std::string photos = folder.path() / "photos", weights = folder.path() / "w.safetensors";
  const auto drawn = run_line("lockstep data synthesize images " + photos +
                              " --classes 2 --train 16 --test 8 --size 40x40");
  ASSERT_EQ(drawn.status, 0) << drawn.output;
  const std::string train =
      "images --epochs 1 --batch-size 8 --image-size 32 --data " + photos + " --output " + weights;
  for (const std::string& more : {std::string(), " --workers 2 --pretrained " + weights}) {
    const auto [status, output] = run_line(train + more);
    EXPECT_EQ(status, 0) << output;
    EXPECT_EQ(numbers_in(output, "epoch 1: accuracy ([0-9.]+)").size(), 1U) << output;
  }
  EXPECT_NE(run_line(train + " --pretrained " + photos).status, 0);
}

}  // namespace
}  // namespace lockstep
