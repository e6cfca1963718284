#include "lockstep/liveness/spare.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

// Becomes a spare to which a launcher writes this.
void wait_for(const std::string& text) {
  Pipe pipe = make_pipe();
  ::setenv(kSpareVariable, std::to_string(pipe.reader.release()).c_str(), 1);
  if (::write(pipe.writer.get(), text.data(), text.size()) != std::ssize(text)) std::_Exit(1);
  pipe.writer.reset();
  wait_if_spare();
}

TEST(Spare, TakesTheVariablesOfItsRank) {
  ::setenv("SPARE_TEST_OLD", "old", 1);
  wait_for(variables_text({{"SPARE_TEST_NEW", "a=b c"}, {"SPARE_TEST_OLD", ""}}));
  EXPECT_STREQ(std::getenv("SPARE_TEST_NEW"), "a=b c");
  EXPECT_EQ(std::getenv("SPARE_TEST_OLD"), nullptr);
  EXPECT_EQ(std::getenv(kSpareVariable), nullptr) << "its own children are none";
  ::unsetenv("SPARE_TEST_NEW");
}

TEST(Spare, WhichIsNotNeededEnds) { EXPECT_EXIT(wait_for(""), ::testing::ExitedWithCode(0), ""); }

TEST(Spare, IsNoOtherProcess) {
  ::unsetenv(kSpareVariable);
  wait_if_spare();
}

TEST(Spare, SaysWhatIsWrong) {
  ::setenv(kSpareVariable, "999999", 1);
  EXPECT_THROW(wait_if_spare(), std::system_error);
  ::setenv(kSpareVariable, "seven", 1);
  EXPECT_THROW(wait_if_spare(), InvalidArgument);
  ::unsetenv(kSpareVariable);
}

TEST(Variables, AreReadAsTheyWereWritten) {
  const Variables variables{{"A", ""}, {"B", "x\ny"}};
  EXPECT_EQ(parse_variables(variables_text(variables)), variables);
  EXPECT_TRUE(parse_variables("").empty());
  for (const std::string text : {"A=1", "A", "=1"}) {
    EXPECT_THROW(parse_variables(text), DataError) << text;
    EXPECT_EQ(parse_variables("A=1" + std::string(1, '\0')).size(), 1U);
  }
  EXPECT_THROW(parse_variables(std::string("A\0", 2)), DataError);
}

}  // namespace
}  // namespace lockstep
