#include "bench/experiment/study.h"

#include <gmock/gmock.h>

#include "tests/bench/experiment/shell_study.h"

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using ::testing::HasSubstr;

Study good() { return testing::shell_study({testing::value_cell("a", 1)}, 1); }

std::string complaint(const Study& study) {
  try {
    check_study(study);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

std::string complaint_about(const std::function<void(StudyCell&)>& spoil) {
  Study study = good();
  spoil(study.cells.front());
  return complaint(study);
}

TEST(CheckStudy, TakesWhatCanBe) {
  EXPECT_EQ(complaint(good()), "");
  EXPECT_EQ(complaint_about([](StudyCell& cell) { cell.id = "a.B_9-c"; }), "");
  EXPECT_EQ(complaint_about([](StudyCell& cell) {
    cell.command.clear();
    cell.not_measurable = "needs root";
  }),
      "");
}

TEST(CheckStudy, RefusesWhatNamesNoFile) {
  for (const std::string& id : {std::string(), std::string(".."), std::string("a/b"),
           std::string("a b"), std::string(201, 'a')}) {
    EXPECT_THAT(complaint_about([&](StudyCell& cell) { cell.id = id; }), HasSubstr("an id must"));
  }
}

TEST(CheckStudy, RefusesWhatCannotBe) {
  Study study = good();
  study.cells.push_back(study.cells.front());
  EXPECT_EQ(complaint(study), "shell: cell 'a': two cells have this id");
  study = good();
  study.rounds = 0;
  EXPECT_EQ(complaint(study), "shell: needs at least 1 round, has 0");
  study = good();
  study.limit_seconds = 0;
  EXPECT_THAT(complaint(study), HasSubstr("a sample needs time"));
  study = good();
  study.values = nullptr;
  EXPECT_THAT(complaint(study), HasSubstr("nothing reads the values"));
}

TEST(CheckStudy, RefusesCellsThatCannotBe) {
  EXPECT_THAT(complaint_about([](auto& cell) { cell.command.clear(); }), HasSubstr("no command"));
  EXPECT_THAT(complaint_about([](auto& cell) { cell.places = 0; }), HasSubstr("1 place, has 0"));
  EXPECT_THAT(complaint_about([](auto& cell) { cell.cores = -1; }), HasSubstr("less than 0"));
  EXPECT_THAT(complaint_about([](auto& cell) { cell.rounds = -1; }), HasSubstr("less than 0"));
  EXPECT_THAT(complaint_about([](auto& cell) {
    cell.settings = {{"n", "1"}, {"n", "2"}};
  }),
      HasSubstr("has the setting n twice"));
  for (const char* variable : {"NAME", "=1"}) {
    EXPECT_THAT(complaint_about([&](auto& cell) { cell.environment = {variable}; }),
        HasSubstr("must be NAME=VALUE"));
  }
}

}  // namespace
}  // namespace lockstep::bench
