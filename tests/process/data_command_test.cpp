#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "launcher_run.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Runs `lockstep data` in a folder of its own.
class DataCommand : public ::testing::Test {
 protected:
  Finished data(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "data");
    return run_launcher(arguments);
  }

  /// Draws 20 images of mnist.
  std::string small_mnist() const {
    const std::string set = folder_.path("set");
    const auto drawn = data({"synthesize", "mnist", set, "--train", "20", "--test", "10"});
    EXPECT_EQ(drawn.status.result(), 0) << drawn.errors;
    return set;
  }

  TemporaryFolder folder_;
};

TEST_F(DataCommand, SynthesizesAndChecks) {
  const auto drawn = data(
      {"synthesize", "images:" + folder_.path("set"), "--classes", "3", "--train", "12", "--test",
       "3", "--size", "40x30", "--seed", "7", "--json"});
  ASSERT_EQ(drawn.status.result(), 0) << drawn.errors;
  EXPECT_THAT(drawn.errors, IsEmpty());  // no bar: stderr is no terminal
  const auto summary = nlohmann::json::parse(drawn.output);
  EXPECT_EQ(summary["train"], 12);
  EXPECT_EQ(summary["classes"], 3);
  const auto checked = data({"check", "images", folder_.path("set"), "--json", "--workers", "2"});
  ASSERT_EQ(checked.status.result(), 0) << checked.errors;
  EXPECT_THAT(checked.errors, IsEmpty());
  const auto report = nlohmann::json::parse(checked.output);
  EXPECT_EQ(report["images"], 15);
  EXPECT_EQ(report["classes"], nlohmann::json({"disc", "ring", "square"}));
  EXPECT_EQ(report["parts"][1]["per_class"], nlohmann::json({1, 1, 1}));
  EXPECT_EQ(report["largest"]["width"], 40);
}

TEST_F(DataCommand, EndsWith3AndListsWhatIsBad) {
  const std::string set = small_mnist();
  fs::resize_file(set + "/train-images-idx3-ubyte", 5000);
  const auto checked = data({"check", "mnist:" + set, "--bad-list", folder_.path("bad.txt")});
  EXPECT_EQ(checked.status.result(), 3);
  EXPECT_THAT(checked.output, HasSubstr("test              10 images in 10 classes, 1 in each"));
  EXPECT_THAT(checked.output, HasSubstr("1 bad\n    " + set + "/train-images-idx3-ubyte: offset"));
  EXPECT_THAT(
      folder_.text_of("bad.txt"),
      ::testing::StartsWith(set + "/train-images-idx3-ubyte\toffset 5000: the file ends after"));
}

TEST_F(DataCommand, WritesOverNothing) {
  const std::string set = small_mnist();
  const auto again = data({"synthesize", "mnist", set});
  EXPECT_EQ(again.status.result(), 2);
  EXPECT_THAT(again.errors, HasSubstr("is there already and is no empty folder"));
  std::ofstream(folder_.path("bad.txt")) << "mine";
  const auto checked = data({"check", "mnist", set, "--bad-list", folder_.path("bad.txt")});
  EXPECT_EQ(checked.status.result(), 4);
  EXPECT_EQ(folder_.text_of("bad.txt"), "mine");
}

TEST_F(DataCommand, ExplainsItself) {
  EXPECT_EQ(data({}).status.result(), 2);
  EXPECT_THAT(data({"--help"}).output, HasSubstr("fetch NAME DIR"));
  EXPECT_THAT(run_launcher({"help", "data"}).output, HasSubstr("synthesize NAME DIR"));
  for (const char* verb : {"fetch", "check", "synthesize"}) {
    const auto help = data({verb, "--help"});
    EXPECT_EQ(help.status.result(), 0);
    EXPECT_THAT(help.output, HasSubstr(std::string("lockstep data ") + verb));
  }
}

TEST_F(DataCommand, RefusesWhatItDoesNotKnow) {
  const auto expect = [&](const std::vector<std::string>& arguments, const std::string& text) {
    const auto ended = data(arguments);
    EXPECT_EQ(ended.status.result(), 2) << text;
    EXPECT_THAT(ended.errors, HasSubstr(text));
    EXPECT_THAT(ended.output, IsEmpty());
  };
  const std::string set = folder_.path("set");
  expect({"synthesise"}, "data: there is no synthesise; did you mean synthesize?");
  expect({"check", "mnist", set, "--job", "1"}, "data check: there is no flag --job");
  expect({"check", "mnist"}, "data check: name the folder of mnist");
  expect({"check", "mnist:" + set, set}, "data check: the folder is given twice");
  expect({"check", "mnist", set, "--workers", "0"}, "--workers must be a whole number from 1 to 1024: 0");
  expect({"synthesize", "images", set, "--size", "224"}, "--size must be WIDTHxHEIGHT");
  expect({"synthesize", "mnist", set, "--train", "x"}, "data synthesize: Could not convert");
  expect({"fetch", "imagenet", set}, "DIR/train/CLASS and DIR/val/CLASS");
  expect({"fetch", "mnist", set, "--mirror", "http://127.0.0.1/"}, "only https is taken");
}

}  // namespace
}  // namespace lockstep::testing
