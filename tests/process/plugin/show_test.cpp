// `lockstep data show` of the sets of plugins: pictures where they are some, else their numbers.

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/process/command.h"
#include "tests/process/plugin/plugin_flag.h"
#include "tests/support/data_uris.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ShowPlugin : public ::testing::Test {
 protected:
  Ended show(const std::string& line) const {
    return run_command(words(concat("data show ", line, " --output ", page())));
  }

  std::string page() const { return folder_.file("page.html"); }

  TemporaryFolder folder_;
};

TEST_F(ShowPlugin, SamplesThatAreNoPicturesAreListed) {
  const std::string text = "one two three four five six seven\n";
  for (const char* name : {"train.txt", "test.txt"})
    std::ofstream(folder_.file(name)) << text << text << text << text;
  const auto ended = show(
      concat("text:", folder_.str(), " ", plugin_flag("text"), "--split test --count 1 --ranks 3"));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("1 of 9 samples"));
  const std::string sheet = contents(page());
  EXPECT_THAT(sheet, HasSubstr("9 samples in 256 classes, 1 x 1 x 64 numbers"));
  EXPECT_THAT(sheet, HasSubstr("<td class=\"text\">1 x 1 x 64</td><td>10</td>"));
  EXPECT_THAT(sheet, HasSubstr("<td class=\"text\">111, 110, 101, 32, 116, 119, 111, 32, ...</td>"))
      << "one two ";
  EXPECT_THAT(sheet, HasSubstr("Shares of 3 ranks"));
  EXPECT_EQ(data_uris(sheet).size(), 0U);
}

TEST_F(ShowPlugin, SamplesThatArePicturesAreDrawn) {
  show("colours " + plugin_flag("shown") + "--count 3").with_code(0);
  const std::string sheet = contents(page());
  EXPECT_EQ(data_uris(sheet).size(), 3U);
  EXPECT_THAT(sheet, HasSubstr("<td>0</td><td class=\"text\">class 0</td><td>4</td>"));
  EXPECT_THAT(sheet, Not(HasSubstr("<h2>Numbers</h2>"))) << "they lie from 0 to 1";
  ASSERT_EQ(show("beyond " + plugin_flag("shown") + "--count 8").code(), 0);
  const std::string beyond = contents(page());
  EXPECT_EQ(data_uris(beyond).size(), 8U);
  EXPECT_THAT(beyond, HasSubstr("<td class=\"text\">0.626087, 0.834783, 1.04348, 0.634783, "))
      << "of sample 1";
  EXPECT_THAT(beyond, HasSubstr("spread from black to white"));
}

TEST_F(ShowPlugin, ASampleThatCannotBeReadIsNamed) {
  show("unreadable " + plugin_flag("shown")).with_code(3);
  EXPECT_THAT(
      contents(page()), HasSubstr("unreadable train 2 cannot be read: no such sample here"));
}

TEST_F(ShowPlugin, RefusesWhatCannotBeAndWritesNothing) {
  const auto expect = [&](int code, const std::string& line, const std::string& text) {
    const auto ended = show(line);
    EXPECT_EQ(ended.code(), code) << line;
    EXPECT_THAT(ended.err, HasSubstr(text)) << line;
    EXPECT_THAT(folder_.names(), ::testing::IsEmpty()) << line;
  };
  expect(2, "nothing " + plugin_flag("shown"), "--data must be one of");
  expect(2, "colours", "there is no set colours");
  expect(2, "colours --plugin /nowhere/x.so", "there is no such file");
  expect(2, "colours --augment crop-flip " + plugin_flag("shown"), "not for a plugin's data");
  expect(3, "text:/nowhere " + plugin_flag("text"), "cannot read /nowhere/train.txt");
}

}  // namespace
}  // namespace lockstep::testing
