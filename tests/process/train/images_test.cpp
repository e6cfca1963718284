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

// What the validation met is reported too, although it comes last.
TEST_F(TrainImages, ThatAreBadAreEachReportedOnce) {
  const auto run = trained_run(with("--bad-images skip --workers 2"));
  for (const std::string name : {"train/cat/13.png", "val/dog/20.png"}) {
    const auto at = run.ended.err.find(name);
    ASSERT_NE(at, std::string::npos) << run.ended.err;
    EXPECT_EQ(run.ended.err.find(name, at + 1), std::string::npos) << run.ended.err;
  }
}

}  // namespace
}  // namespace lockstep::testing
