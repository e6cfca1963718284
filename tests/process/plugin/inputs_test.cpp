// Trains nets on samples of several tensors: the classifier of examples/plugin_inputs/lines.cpp in
// the ways that take them, and sets and nets that do not go together.

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/process/plugin/plugin_flag.h"
#include "tests/process/train/trained_run.h"
#include "tests/support/data_uris.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// Lines of 4 to 9 words, whose class is how often one of them is there; some are cut.
void write_lines(const std::string& path) {
  std::ofstream file(path);
  for (int i = 0; i < 96; ++i) {
    file << i % 3;
    for (int word = 0; word < 4 + i % 6; ++word)
      file << (word < i % 3 ? " zoo" : (word * 7 + i) % 5 == 0 ? " tree" : " at");
    file << '\n';
  }
}

class Inputs : public ::testing::Test {
 protected:
  Inputs() {
    for (const char* name : {"train.txt", "test.txt"}) write_lines(folder_.file(name));
  }

  // Of three steps an epoch.
  std::string lines_flags() const {
    return concat("--data lines:", folder_.str(), " ", plugin_flag("lines"),
        "--model line-classifier --seed 3 --opt adam --lr 0.01 ");
  }

  TrainedRun lines(const std::string& flags) const {
    return trained_run(lines_flags() + "--epochs 4 " + flags);
  }

  Ended step(const std::string& flags) const {
    return train(concat("--max-steps 1 --output ", folder_.file("step"), " --overwrite ", flags));
  }

  // Refused with this code for one reason, by one rank and by two.
  std::string refusal(int code, const std::string& flags) const {
    const Ended alone = step(flags), both = step(flags + " --nproc-per-node 2");
    EXPECT_EQ(alone.code(), code) << flags << ": " << alone.err;
    EXPECT_EQ(both.code(), code) << flags << ": " << both.err;
    return alone.err;
  }

  TemporaryFolder folder_;
};

TEST_F(Inputs, AreTrainedOnInEveryWayThatTakesThem) {
  const TrainedRun alone = lines("--batch-size 32");
  EXPECT_LT(alone.losses().back(), 0.9 * alone.losses().front());
  for (const std::string way :
      {"--parallel dp --batch-size 16", "--nproc-per-node 2 --batch-size 16",
          "--parallel ddp --places 2 --batch-size 16", "--grad-accum-steps 2 --batch-size 16"}) {
    SCOPED_TRACE(way);
    const TrainedRun spread = lines(way);
    expect_near(spread.losses(), alone.losses(), 12);
    expect_near(spread.values("val", "loss"), alone.values("val", "loss"), 4);
  }
  for (const char* workers : {"--workers 0", "--workers 3"})
    EXPECT_EQ(lines(concat("--batch-size 32 ", workers)).summary["parameters_hash"],
        alone.summary["parameters_hash"])
        << workers;
}

// Masks of 0 and 1 are the same in bfloat16, and bytes stay whole numbers.
TEST_F(Inputs, OfFloatAreShortenedAndOfInt64AreNot) {
  const TrainedRun whole = lines("--batch-size 32");
  for (const char* precision : {"bf16-mixed", "16-mixed"}) {
    const auto losses = lines(concat("--batch-size 32 --precision ", precision)).losses();
    ASSERT_EQ(losses.size(), 12U);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], whole.losses()[i], 0.03) << precision << " " << i;
  }
}

TEST_F(Inputs, ARunOfThemGoesOnWhereItWasStopped) {
  const TrainedRun whole = lines("--batch-size 16 --nproc-per-node 2");
  const std::string common = concat(lines_flags(), "--batch-size 16 --nproc-per-node 2 --output ",
      folder_.file("run"), " --resume auto --log-interval 1 ");
  ASSERT_EQ(train(common + "--max-steps 5").code(), 0) << "in the middle of an epoch";
  const Ended ended = train(common + "--epochs 4 --json").with_code(0);
  EXPECT_THAT(ended.out, HasSubstr(whole.summary["parameters_hash"].get<std::string>()));
}

// The same numbers under another name: it may be another thing.
TEST_F(Inputs, AResumeRefusesOthers) {
  const auto go_on = [&](const std::string& set) {
    return train(concat(plugin_flag("shown"), "--model table-net --resume auto --max-steps 2 ",
        "--output ", folder_.file("run"), " --data ", set));
  };
  ASSERT_EQ(go_on("tables").code(), 0);
  EXPECT_EQ(go_on("tables").code(), 0);
  const Ended other = go_on("tables:renamed").with_code(3);
  EXPECT_THAT(other.err, HasSubstr("fingerprint of the samples: the snapshot has"));
}

TEST_F(Inputs, AreEvaluatedAsTheyWereMeasured) {
  const auto page_of_run = [&](const std::string& flags) {
    const std::string run = folder_.file("run"), page = folder_.file("eval.html");
    EXPECT_EQ(train(concat(flags, " --epochs 1 --overwrite --output ", run)).code(), 0);
    const Ended ended =
        run_command(words(concat("eval --json --worst 3 --run ", run, " --output ", page)));
    EXPECT_EQ(ended.code(), 0) << ended.err;
    EXPECT_EQ(nlohmann::json::parse(ended.out)["loss"],
        json_lines(run + "/metrics.jsonl").back()["loss"]);
    return contents(page);
  };
  const std::string page = page_of_run(lines_flags());
  EXPECT_THAT(page, HasSubstr("<figure class=\"picture\"><figcaption>")) << "no input is a picture";
  EXPECT_EQ(
      data_uris(page_of_run(plugin_flag("shown") + "--data tables --model table-net")).size(), 3U);
}

TEST_F(Inputs, HaveARowEachOnAContactSheet) {
  const std::string page = folder_.file("page.html");
  const Ended ended = run_command(words(concat(
      "data show tables --split test --count 2 ", plugin_flag("shown"), " --output ", page)));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  const std::string sheet = contents(page);
  EXPECT_THAT(
      sheet, HasSubstr("8 samples in 2 classes, numbers [5] int64, picture [1, 4, 6] float as"));
  EXPECT_THAT(sheet, HasSubstr("<td class=\"text\">class 0</td><td class=\"text\">numbers</td>"
                               "<td class=\"text\">5</td><td>20000000</td>"));
  EXPECT_THAT(
      sheet, HasSubstr("<td class=\"text\">20000000, 21000000, 22000000, 23000000, 24000000</td>"));
  EXPECT_THAT(sheet, HasSubstr("<td class=\"text\">picture</td><td class=\"text\">1 x 4 x 6</td>"));
  EXPECT_EQ(data_uris(sheet).size(), 2U);
}

// A chain is cut on one named input, and on no more.
TEST_F(Inputs, StagesHandOnOneTensor) {
  const std::string chain = concat(plugin_flag("shown"),
      "--data words --model word-chain --seed 3 --opt sgd --lr 0.1 --epochs 3 --batch-size 32 ");
  const TrainedRun alone = trained_run(chain);
  for (const char* way : {"--parallel mp", "--parallel mp --nproc-per-node 2 --balance size"})
    EXPECT_EQ(trained_run(chain + way).summary["parameters_hash"], alone.summary["parameters_hash"])
        << way;
  expect_near(trained_run(chain + "--parallel pp --chunks 2").losses(), alone.losses(), 6);
  for (const std::string way : {"--parallel mp", "--parallel pp", "--parallel pp --dry-run"}) {
    const std::string err = refusal(2, lines_flags() + way);
    EXPECT_THAT(err, HasSubstr("hands one tensor from stage to stage, but a sample of lines has 2: "
                               "bytes [32] int64, mask [32] float; take serial, dp or ddp"))
        << way;
  }
}

TEST_F(Inputs, OfAnotherNumberThanTheNetTakesAreRefused) {
  const std::string two = plugin_flag("bad") + "--data two --model ";
  for (const std::string more : {"", " --dry-run"}) {
    EXPECT_THAT(refusal(2, two + "three" + more),
        HasSubstr("three takes 3 tensors, but a sample of two has 2: ids [3] int64, mask [3] f"));
    EXPECT_THAT(refusal(2, two + "toy" + more), HasSubstr("toy takes 1 tensor, but a sample"));
    EXPECT_THAT(refusal(2, plugin_flag("bad") + "--data mock --model two" + more),
        HasSubstr("two takes 2 tensors, but a sample of mock is one tensor, an image"));
  }
  EXPECT_THAT(step(two + "vgg11 --dry-run").err, HasSubstr("vgg11 takes 1 tensor"))
      << "not of the sides of an image";
}

TEST_F(Inputs, ThatDoNotFitTheNetAreNamedWithWhatLibTorchSays) {
  for (const std::string way : {"", " --parallel dp"}) {
    const std::string two = plugin_flag("bad") + "--batch-size 10 --data two --model ";
    EXPECT_THAT(refusal(2, two + "two" + way),
        ::testing::ContainsRegex("plugin: two fails on \\[[0-9]+, 3\\] of Long, .* of Float: .*"
                                 "same dtype"))
        << way;
    EXPECT_THAT(refusal(2, two + "narrow" + way),
        ::testing::ContainsRegex("plugin: narrow fails on .*cannot be multiplied"))
        << way;
  }
}

TEST_F(Inputs, OfASetThatIsNotWholeEndItWithCodeThree) {
  const auto expect = [&](const std::string& fault, const std::string& text) {
    const Ended ended = step(concat(plugin_flag("bad"), "--model two --data two:", fault));
    EXPECT_EQ(ended.code(), 3) << fault << ": " << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(text)) << fault;
  };
  expect("nameless", "two train: input 1,  [3], has no name, or one that is taken");
  expect("alike", "two train: input 1, ids [3], has no name, or one that is taken");
  expect("half", "input 1, mask [3], is of Half, but must be of torch::kFloat or torch::kLong");
  expect("hollow", "mask [3, 0], has a size below 1, or too many numbers");
  expect("vast", "has a size below 1, or too many numbers");
  expect("many", "names 9 inputs: there may be 8");
  expect("silent", "needs samples, classes, label and read_inputs");
  expect("shaped", "neither a shape nor read beside them");
  expect("other-test", "train and test must have the same inputs");
  expect("floats", "two train 0 cannot be read: the input ids is of Long: write integers(0)");
  expect("third", "two train 0 cannot be read: it has 2 inputs, and none 2");
  expect("unheard-of", "two cannot be opened: ");
}

}  // namespace
}  // namespace lockstep::testing
