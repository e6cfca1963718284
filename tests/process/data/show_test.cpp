#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/command.h"
#include "tests/support/data_uris.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Runs `lockstep data show` in a folder.
class DataShow : public ::testing::Test {
 protected:
  Ended show(const std::string& line) const {
    return run_command(words("data show " + line + " --output " + page()));
  }

  void synthesize(const std::string& line) const {
    run_command(words("data synthesize " + line)).with_code(0);
  }

  std::string page() const { return folder_.file("page.html"); }
  std::string set() const { return folder_.file("set"); }

  TemporaryFolder folder_;
};

TEST_F(DataShow, MakesAPageOfEverySetThatTrainKnows) {
  for (const std::string name : {"mnist", "fashion-mnist", "cifar10", "cifar100", "images"}) {
    const std::string place = folder_.file(name);
    const bool is_small = name == "images";
    synthesize(name + " " + place + (is_small ? " --classes 2" : "") + " --train 20 --test 10");
    const auto ended = show(name + ":" + place + " --augment crop-flip --count 3 --draws 2");
    ASSERT_EQ(ended.code(), 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr(page() + ", 3 of 20 images"));
    EXPECT_EQ(data_uris(contents(page())).size(), 9U) << name;
  }
  EXPECT_EQ(show("mock --count 5").code(), 0);
  EXPECT_EQ(data_uris(contents(page())).size(), 5U) << "the page was replaced";
}

TEST_F(DataShow, NamesClassesAndSharesOut) {
  synthesize("images " + set() + " --classes 3 --train 7 --test 3 --size 32x32");
  show("images " + set() + " --ranks 2 --image-size 32").with_code(0);
  const std::string text = contents(page());
  for (const char* name : {"disc", "ring", "square"}) EXPECT_THAT(text, HasSubstr(name));
  EXPECT_THAT(text, HasSubstr("7 images in 3 classes, 32 x 32 pixels"));
  EXPECT_THAT(text, HasSubstr("Shares of 2 ranks"));
}

TEST_F(DataShow, ShowsTheClassesThatAreNamed) {
  synthesize("images " + set() + " --classes 3 --train 6 --test 3 --size 32x32");
  show("images " + set() + " --classes square,disc --image-size 32").with_code(0);
  EXPECT_THAT(contents(page()), HasSubstr("4 images in 2 classes"));
  const auto other = show("images " + set() + " --classes square,disk").with_code(2);
  EXPECT_THAT(other.err, HasSubstr("no class folder disk; did you mean disc?"));
}

TEST_F(DataShow, EndsWith3WhereAnImageCannotBeRead) {
  synthesize("images " + set() + " --classes 2 --train 4 --test 2");
  std::ofstream(set() + "/train/disc/bad.png") << "no image";
  const auto ended = show("images " + set() + " --count 5").with_code(3);
  EXPECT_THAT(ended.err, HasSubstr("1 of them cannot be read"));
  EXPECT_THAT(contents(page()), HasSubstr("disc/bad.png"));
  EXPECT_EQ(data_uris(contents(page())).size(), 4U);
}

TEST_F(DataShow, RefusesWhatCannotBeAndWritesNothing) {
  const auto expect = [&](int code, const std::string& line, const std::string& text) {
    const auto ended = show(line);
    EXPECT_EQ(ended.code(), code) << line;
    EXPECT_THAT(ended.err, HasSubstr(text));
    EXPECT_THAT(ended.out, IsEmpty());
  };
  synthesize("mnist " + set() + " --train 20 --test 10");
  expect(2, "cifar " + set(), "data show: there is no set cifar; did you mean cifar10?");
  expect(2, "cifar10", "data show: name the folder of cifar10: cifar10:DIR");
  expect(2, "mnist " + set() + " --augment timm", "the images of mnist are grey");
  expect(2, "mnist " + set() + " --augment crop-flip --split test", "not for --split test");
  expect(2, "mnist " + set() + " --ranks 0", "--ranks must be a whole number from 1 to 256");
  expect(2, "mnist " + set() + " --model resnet", "did you mean resnet18?");
  expect(3, "mnist " + folder_.file("none"), "no such file");
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("set"));
  const auto ended = run_command(words("data show mnist " + set())).with_code(2);
  EXPECT_THAT(ended.err, HasSubstr("--output is required"));
}

}  // namespace
}  // namespace lockstep::testing
