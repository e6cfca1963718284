// Trains on folders of images: files that cannot be read end the run, or are reported and counted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/process/train/trained_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

// Eight images in each of two classes, to train with and to validate on, one of each part bad.
class TrainImages : public ::testing::Test {
 protected:
  TrainImages() {
    for (const char* part : {"train", "val"}) {
      for (int i = 0; i < 16; ++i) {
        const std::string name =
            std::string(part) + (i < 8 ? "/cat/" : "/dog/") + std::to_string(10 + i) + ".png";
        write_flat_png(folder_, name, static_cast<std::uint8_t>(10 * i), 8);
      }
    }
    write_no_image(folder_, "train/cat/13.png");
    write_no_image(folder_, "val/dog/20.png");
  }

  std::string with(const std::string& flags) const {
    return flags + " --model resnet18-cifar --image-size 8 --batch-size 4 --epochs 1" +
           " --data images:" + folder_.str();
  }

  TemporaryFolder folder_;
};

TEST_F(TrainImages, ThatAreBadEndTheRunByName) {
  const Ended ended = train(with("--output " + folder_.file("run")));
  EXPECT_EQ(ended.code(), 3);
  EXPECT_THAT(ended.err, HasSubstr("train/cat/13.png"));
}

TEST_F(TrainImages, ThatAreBadAreCounted) {
  const auto run = trained_run(with("--bad-images skip --nproc-per-node 2"));
  EXPECT_EQ(run.summary["bad_images"], 2);
  EXPECT_EQ(run.summary["epochs"][0]["samples"], 16);
}

TEST_F(TrainImages, ThatAreNotReadAreNamedByTrainAndEval) {
  write_no_image(folder_, "train/cat/1.webp");
  const TemporaryFolder runs;
  const std::string run = runs.file("run");
  const Ended trained = train(with("--bad-images skip --output " + run)).with_code(0);
  EXPECT_EQ(count_of("warning: these files of ", trained.err), 1) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr("outside the class folders: 1 .webp\n"));
  const Ended evaluated = run_command(words("eval --run " + run)).with_code(0);
  EXPECT_EQ(count_of("warning: these files of ", evaluated.err), 1) << evaluated.err;
  EXPECT_THAT(evaluated.err, HasSubstr("outside the class folders: 1 .webp\n"));
}

// What the validation met is reported too, although it comes last.
TEST_F(TrainImages, ThatAreBadAreEachReportedOnce) {
  const auto run = trained_run(with("--bad-images skip --workers 2"));
  for (const std::string name : {"train/cat/13.png", "val/dog/20.png"}) {
    const auto at = run.ended.err.find(name);
    ASSERT_NE(at, std::string::npos) << run.ended.err;
    EXPECT_EQ(run.ended.err.find(name, at + 1), std::string::npos) << run.ended.err;
  }
}

// Named in the other order: eval finds the run's, and their names.
TEST_F(TrainImages, OfTheNamedClassesAreEvaluatedAsTheyWereTrained) {
  for (const char* part : {"train", "val"}) {
    write_flat_png(folder_, std::string(part) + "/eel/1.png", 200, 8);
    write_flat_png(folder_, std::string(part) + "/eel/2.png", 210, 8);
  }
  const TemporaryFolder runs;
  const std::string run = runs.file("run");
  const Ended trained = train(with("--bad-images skip --classes eel,cat --output " + run));
  ASSERT_EQ(trained.code(), 0) << trained.err;
  const auto record = json_lines(run + "/metrics.jsonl").back();
  const Ended ended = run_command(words("eval --json --run " + run));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  const auto json = nlohmann::json::parse(ended.out);
  EXPECT_EQ(json["loss"], record["loss"]);
  EXPECT_EQ(json["samples"], 10);
  EXPECT_EQ(json["classes"][0]["name"], "eel");
  EXPECT_EQ(json["classes"][1]["name"], "cat");
  EXPECT_EQ(run_command(words("eval --classes cat,eel --json --run " + run)).code(), 0);
  const Ended resumed = train(with("--bad-images skip --resume auto --output " + run));
  EXPECT_EQ(resumed.code(), 3) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("--classes: "));
}

// By workers, on two ranks, kept in part and in full, and after a resume with another limit.
TEST_F(TrainImages, ThatAreKeptTrainTheSame) {
  for (const char* name : {"train/cat/13.png", "val/dog/20.png"}) {
    write_flat_png(folder_, name, 99, 8);
  }
  const TemporaryFolder runs;
  const auto run = [&](const std::string& name, const std::string& more) {
    const Ended ended = train(with("--nproc-per-node 2 --workers 2 --augment timm") +
                              " --epochs 3 --resume auto --output " + runs.file(name) + more);
    EXPECT_EQ(ended.code(), 0) << ended.err;
    const std::string summary = contents(runs.file(name) + "/summary.json");
    return nlohmann::json::parse(summary)["parameters_hash"].dump();
  };
  const std::string expected = run("read", "");
  EXPECT_EQ(run("kept", " --cache-decoded 1M"), expected);
  EXPECT_NE(run("stopped", " --cache-decoded 1M --max-steps 3"), expected);
  EXPECT_EQ(run("stopped", " --cache-decoded 2K"), expected);
}

}  // namespace
}  // namespace lockstep::testing
