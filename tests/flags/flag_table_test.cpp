#include "lockstep/flags/flag_table.h"

#include <gmock/gmock.h>

#include "tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using Words = std::vector<std::string>;

enum class Colour { kRed, kGreen };
constexpr auto names_of(Colour) {
  return std::array{EnumName{Colour::kRed, "red"}, EnumName{Colour::kGreen, "green"}};
}

struct Inner {
  double rate = 0.5;
};

struct Painting {
  int workers = 1;
  std::string log_dir;
  std::string frame = "oak";
  std::int64_t seed = 7;
  std::optional<int> size = {};
  std::vector<std::string> names = {}, sets = {};
  Colour colour = Colour::kGreen;
  Inner inner;
  bool is_quiet = false, pins = true;
  std::string file;
};

const FlagTable<Painting>& table() {
  using P = Painting;
  static const FlagTable<P> kFlags(
      {.verb = "paint", .usage = "paint FILE", .description = "Paints.\n", .footer = "The end."},
      {{"Arguments", {flag("FILE", "", "what to paint", &P::file)}},
          {"Options",
              {flag("--nproc-per-node", "N", "painters", &P::workers).from(1).to(9),
                  flag("--log-dir", "DIR", "folder", &P::log_dir).letter("-l"),
                  flag("--frame", "TEXT", "may be none", &P::frame)
                      .may_be_empty()
                      .variable("PAINT_FRAME"),
                  flag("--seed", "N", "start", &P::seed).letter("-s"),
                  flag("--size", "N", "how large", &P::size)
                      .usually("as it is")
                      .variable("PAINT_SIZE"),
                  flag("--names", "A,B", "of people", &P::names),
                  flag("--set", "NAME", "may be repeated", &P::sets).repeated(),
                  flag("--colour", "NAME", "{}", &P::colour),
                  flag("--rate", "X", "of flow", &P::inner, &Inner::rate).above(0).below(1),
                  flag_on("--quiet", "no talk", &P::is_quiet).letter("-q").variable("PAINT_QUIET"),
                  flag_off("--no-pin", "loose", &P::pins)}}});
  return kFlags;
}

Painting painted(const Words& words) {
  Painting painting;
  table().read(painting, table().parse(words));
  return painting;
}

std::string refusal(const Words& words) {
  return message_of<InvalidArgument>([&] { painted(words); });
}

GivenFlags at_program(const Words& words) { return table().parse(words, AfterFlags::kProgram); }

Words names_and_values(const GivenFlags& given) {
  Words words;
  for (const GivenFlag& each : given.flags) words.push_back(each.spec->name + "=" + each.value);
  return words;
}

TEST(SplitAtProgram, LeavesTheProgramsOwnFlagsToIt) {
  const auto given = at_program({"--nproc_per_node", "2", "-q", "./hello", "--log-dir", "x"});
  EXPECT_THAT(names_and_values(given), ElementsAre("--nproc-per-node=2", "--quiet="));
  EXPECT_THAT(given.program, ElementsAre("./hello", "--log-dir", "x"));
}

TEST(SplitAtProgram, StopsAtTwoDashes) {
  const auto given = at_program({"--quiet", "--", "--odd", "--"});
  EXPECT_THAT(names_and_values(given), ElementsAre("--quiet="));
  EXPECT_THAT(given.program, ElementsAre("--odd", "--"));
}

TEST(SplitAtProgram, UnderstandsValuesInTheSameWord) {
  const auto given = at_program({"--log_dir=a_b", "-s3", "-ql", "x", "prog"});
  EXPECT_THAT(
      names_and_values(given), ElementsAre("--log-dir=a_b", "--seed=3", "--quiet=", "--log-dir=x"));
  EXPECT_THAT(given.program, ElementsAre("prog"));
}

TEST(SplitAtProgram, MayFindNoProgram) {
  EXPECT_THAT(at_program({"-q"}).program, IsEmpty());
  EXPECT_THAT(at_program({}).flags, IsEmpty());
}

TEST(GivenFlags, KeepTheWordsThatTheyWereWrittenIn) {
  const auto given = table().parse({"--log_dir=x", "-np", "2", "--quiet"});
  EXPECT_THAT(given.flags[0].words, ElementsAre("--log_dir=x"));
  EXPECT_THAT(given.flags[1].words, ElementsAre("-np", "2"));
  EXPECT_EQ(given.flags[1].spec->name, "--nproc-per-node");
  EXPECT_THAT(given.flags[2].words, ElementsAre("--quiet"));
}

TEST(FlagNames, UnderscoresAreDashesInNamesOnly) {
  EXPECT_EQ(painted({"--log_dir=a_b"}).log_dir, "a_b");
  EXPECT_EQ(painted({"--log_dir", "a_b"}).log_dir, "a_b");
  EXPECT_EQ(painted({"-np=2"}).workers, 2);
  EXPECT_EQ(painted({"under_score"}).file, "under_score");
}

TEST(FlagTable, ReadsEveryType) {
  const Painting painting =
      painted({"--size", "3", "--names", "a,b", "--set", "x,y", "--set", "z", "--colour", "red",
          "--rate", "1e-3", "--seed", "-9223372036854775808", "--no-pin", "-q", "a.png"});
  EXPECT_EQ(painting.size, 3);
  EXPECT_THAT(painting.names, ElementsAre("a", "b"));
  EXPECT_THAT(painting.sets, ElementsAre("x,y", "z"));
  EXPECT_EQ(painting.colour, Colour::kRed);
  EXPECT_EQ(painting.inner.rate, 1e-3);
  EXPECT_EQ(painting.seed, std::numeric_limits<std::int64_t>::min());
  EXPECT_FALSE(painting.pins);
  EXPECT_TRUE(painting.is_quiet);
  EXPECT_EQ(painting.file, "a.png");
  EXPECT_EQ(painted({"--size", "1", "--size", "2"}).size, 2) << "the last counts";
}

TEST(FlagTable, RefusesWhatAFlagDoesNotTake) {
  const std::string rate = "paint: --rate must be a number above 0 and below 1: ";
  for (const char* bad : {"abc", "0", "1", "nan", "inf", "1e999", "0.5x"})
    EXPECT_EQ(refusal({"--rate", bad}), rate + bad);
  for (const char* bad : {"0", "10", "x", "1.5", "99999999999", "99999999999999999999", "+1"})
    EXPECT_EQ(refusal({"-np", bad}),
        concat("paint: --nproc-per-node must be a whole number from 1 to 9: ", bad));
  EXPECT_THAT(refusal({"--size", "3000000000"}), HasSubstr("must be a whole number: 3000000000"));
  EXPECT_EQ(refusal({"--colour", "gren"}),
      "paint: --colour must be one of red, green: gren; did you mean green?");
  EXPECT_THAT(refusal({"--names", "a,,b"}), HasSubstr("--names must be A,B: 'a,,b'"));
}

TEST(FlagTable, RefusesEmptyAndMissingValues) {
  for (const char* name : {"--nproc-per-node", "--log-dir", "--size", "--names", "--colour"}) {
    EXPECT_EQ(refusal({name, ""}), concat("paint: ", name, " must not be empty"));
    EXPECT_EQ(refusal({concat(name, "=")}), concat("paint: ", name, " must not be empty"));
    EXPECT_THAT(refusal({name}), HasSubstr(concat(name, " needs a value")));
    EXPECT_THAT(refusal({name, "--quiet"}), HasSubstr(concat(name, " needs a value")));
  }
  EXPECT_EQ(painted({"--frame", ""}).frame, "");
  EXPECT_THAT(refusal({"--quiet=yes"}), HasSubstr("--quiet takes no value"));
}

TEST(FlagTable, ProposesTheFlagThatWasMeant) {
  EXPECT_EQ(refusal({"--log_dri=x"}), "paint: there is no flag --log-dri; did you mean --log-dir?");
  EXPECT_EQ(refusal({"-z"}), "paint: there is no flag -z");
  EXPECT_EQ(refusal({"a.png", "b.png"}), "paint: there is no flag b.png");
}

TEST(FlagTable, HelpHasTheDefaultsFromColumnThirtyFour) {
  EXPECT_TRUE(table().parse({"--help", "--nonsense"}).asks_help);
  const std::string help = table().help();
  EXPECT_THAT(help, HasSubstr("Paints.\n\nUsage: paint FILE\n\nArguments:\n  FILE  "));
  EXPECT_THAT(help, HasSubstr("\n  --nproc-per-node N              painters [1]\n"));
  EXPECT_THAT(help, HasSubstr("\n  -l,--log-dir DIR                folder\n"));
  EXPECT_THAT(help, HasSubstr("how large [as it is]\n"));
  EXPECT_THAT(help, HasSubstr("red, green [green]\n"));
  EXPECT_THAT(help, HasSubstr("\n  -h,--help                       print this\n\nThe end.\n"));
}

TEST(FlagTable, AVariableIsTheDefaultAndTheCommandLineWins) {
  ::setenv("PAINT_FRAME", "ash", 1);
  EXPECT_EQ(painted({}).frame, "ash");
  EXPECT_EQ(painted({"--frame", "elm"}).frame, "elm");
  ::setenv("PAINT_FRAME", "", 1);
  EXPECT_EQ(painted({}).frame, "") << "this flag may be empty";
  ::unsetenv("PAINT_FRAME");
  EXPECT_EQ(painted({}).frame, "oak");
}

TEST(FlagTable, AVariableIsReadAsStrictlyAsTheFlag) {
  const auto refused = [](const char* variable, const char* text) {
    ::setenv(variable, text, 1);
    const std::string message = refusal({});
    ::unsetenv(variable);
    return message;
  };
  EXPECT_EQ(refused("PAINT_SIZE", ""),
      "environment: PAINT_SIZE is set, but empty; give it a value, or unset it");
  EXPECT_EQ(refused("PAINT_SIZE", "1x"),
      "paint: PAINT_SIZE, which stands for --size, must be a whole number: 1x");
  EXPECT_EQ(refused("PAINT_QUIET", "2"),
      "paint: PAINT_QUIET, which stands for --quiet, must be 1 or 0: 2");
  EXPECT_THAT(refused("PAINT_QUIET", ""), HasSubstr("PAINT_QUIET is set, but empty"));
  ::setenv("PAINT_QUIET", "true", 1);
  EXPECT_TRUE(painted({}).is_quiet);
  ::setenv("PAINT_QUIET", "0", 1);
  EXPECT_FALSE(painted({}).is_quiet);
  ::unsetenv("PAINT_QUIET");
}

}  // namespace
}  // namespace lockstep
