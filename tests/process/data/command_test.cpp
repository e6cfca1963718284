#include "tests/process/command.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Runs `lockstep data` in a folder.
class DataCommand : public ::testing::Test {
 protected:
  static Ended data(const std::string& line) { return run_command(words("data " + line)); }

  /// Draws 20 images of mnist, and returns their folder.
  std::string small_mnist() const {
    const std::string set = folder_.file("set");
    data("synthesize mnist " + set + " --train 20 --test 10").with_code(0);
    return set;
  }

  TemporaryFolder folder_;
};

TEST_F(DataCommand, SynthesizesAndChecks) {
  const auto drawn = data("synthesize images:" + folder_.file("set") +
                          " --classes 3 --train 12 --test 3 --size 40x30 --seed 7 --json");
  ASSERT_EQ(drawn.code(), 0) << drawn.err;
  EXPECT_THAT(drawn.err, IsEmpty());  // no bar: stderr is no terminal
  const auto summary = nlohmann::json::parse(drawn.out);
  EXPECT_EQ(summary["train"], 12);
  EXPECT_EQ(summary["classes"], 3);
  const auto checked = data("check images " + folder_.file("set") + " --json --workers 2");
  ASSERT_EQ(checked.code(), 0) << checked.err;
  EXPECT_THAT(checked.err, IsEmpty());
  const auto report = nlohmann::json::parse(checked.out);
  EXPECT_EQ(report["images"], 15);
  EXPECT_EQ(report["classes"], nlohmann::json({"disc", "ring", "square"}));
  EXPECT_EQ(report["parts"][1]["per_class"], nlohmann::json({1, 1, 1}));
  EXPECT_EQ(report["largest"]["width"], 40);
}

TEST_F(DataCommand, EndsWith3AndListsWhatIsBad) {
  const std::string set = small_mnist();
  fs::resize_file(set + "/train-images-idx3-ubyte", 5000);
  const auto checked = data("check mnist:" + set + " --bad-list " + folder_.file("bad.txt"));
  EXPECT_EQ(checked.code(), 3);
  EXPECT_THAT(checked.out, HasSubstr("test              10 images in 10 classes, 1 in each"));
  EXPECT_THAT(checked.out, HasSubstr("1 bad\n    " + set + "/train-images-idx3-ubyte: offset"));
  EXPECT_THAT(contents(folder_.file("bad.txt")),
      ::testing::StartsWith(set + "/train-images-idx3-ubyte\toffset 5000: the file ends after"));
}

TEST_F(DataCommand, WritesOverNothing) {
  const std::string set = small_mnist();
  EXPECT_THAT(data("synthesize mnist " + set).with_code(2).err, HasSubstr("already exists"));
  std::ofstream(folder_.file("bad.txt")) << "mine";
  data("check mnist " + set + " --bad-list " + folder_.file("bad.txt")).with_code(4);
  EXPECT_EQ(contents(folder_.file("bad.txt")), "mine");
}

TEST_F(DataCommand, ShowsHowASetAndItsFolderAreNamed) {
  for (const std::string verb : {"check", "synthesize"}) {
    EXPECT_THAT(data(verb + " c100").with_code(2).err,
        HasSubstr(
            "there is no set c100; name a set and its folder, such as cifar100:c100 (the sets are "
            "mnist, fashion-mnist, cifar10, cifar100, images, tensors, tokens, text)"));
    const auto set_alone = data(verb + " cifar100").with_code(2);
    EXPECT_THAT(set_alone.err, HasSubstr("name the folder of cifar100: cifar100:DIR"));
  }
}

TEST_F(DataCommand, ExplainsItself) {
  EXPECT_EQ(data("").code(), 2);
  EXPECT_THAT(data("--help").out, HasSubstr("fetch NAME DIR"));
  EXPECT_THAT(run_command({"help", "data"}).out, HasSubstr("synthesize NAME DIR"));
  for (const std::string verb : {"fetch", "check", "synthesize", "show"}) {
    EXPECT_THAT(data(verb + " --help").with_code(0).out, HasSubstr("lockstep data " + verb));
  }
}

TEST_F(DataCommand, RefusesWhatItDoesNotKnow) {
  const auto expect = [&](const std::string& line, const std::string& text) {
    const auto ended = data(line);
    EXPECT_EQ(ended.code(), 2) << text;
    EXPECT_THAT(ended.err, HasSubstr(text));
    EXPECT_THAT(ended.out, IsEmpty());
  };
  const std::string set = folder_.file("set");
  expect("synthesise", "data: there is no synthesise; did you mean synthesize?");
  expect("check mnist " + set + " --job 1", "data check: there is no flag --job");
  expect("check mnist", "data check: name the folder of mnist");
  expect("check mnist:" + set + " " + set, "data check: the folder is given twice");
  expect(
      "check mnist " + set + " --workers 0", "--workers must be a whole number from 1 to 1024: 0");
  expect("synthesize images " + set + " --size 224", "--size must be WIDTHxHEIGHT");
  expect("synthesize mnist " + set + " --train x",
      "data synthesize: --train must be a whole number: x");
  expect("fetch imagenet " + set, "DIR/train/CLASS and DIR/val/CLASS");
  expect("fetch mnist " + set + " --mirror http://127.0.0.1/", "only https is taken");
}

}  // namespace
}  // namespace lockstep::testing
