// Gives every flag of every verb, as their helps list them, nothing and numbers that are none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <stdlib.h>

#include "tests/process/command.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

struct Verb {
  std::string words;
  std::string rest;  ///< that it cannot do without
};

const std::vector<Verb> kVerbs{{"run", "true"}, {"hosts --count 2", "-- true"}, {"bench", ""},
    {"collectives", ""}, {"convert", "in.pt out.pt"}, {"report", "run"}, {"eval", "--run run"},
    {"sample", "--run run --prompt a"}, {"data fetch", "mnist /nonexistent/d"},
    {"data check", "mnist /nonexistent/d"}, {"data synthesize", "mnist /nonexistent/d"}};

struct ListedFlag {
  std::string name, value;
};

/// Finds the flags that take a value in the help of a verb.
std::vector<ListedFlag> flags_of(const Verb& verb) {
  const Ended help = run_command(words(verb.words + " --help"));
  EXPECT_EQ(help.code(), 0) << verb.words << ": " << help.err;
  static const std::regex kRow("\n  (?:-.,)?(--[a-z-]+) ([^ \n]+)");
  std::vector<ListedFlag> flags;
  for (std::sregex_iterator row(help.out.begin(), help.out.end(), kRow), end; row != end; ++row)
    flags.push_back({(*row)[1], (*row)[2]});
  return flags;
}

Ended given(const Verb& verb, const std::string& flag, const std::string& value) {
  Words all = words(verb.words);
  all.insert(all.end(), {flag, value});
  const Words rest = words(verb.rest);
  all.insert(all.end(), rest.begin(), rest.end());
  return run_command(all);
}

TEST(FlagValues, M5NothingIsNoValue) {
  std::size_t count = 0;
  for (const Verb& verb : kVerbs) {
    for (const ListedFlag& flag : flags_of(verb)) {
      if (flag.name == "--log-line-prefix") continue;  // none is a choice
      const Ended ended = given(verb, flag.name, "");
      EXPECT_EQ(ended.code(), 2) << verb.words << ' ' << flag.name;
      EXPECT_THAT(ended.err, HasSubstr(flag.name + " must not be empty")) << verb.words;
      ++count;
    }
  }
  EXPECT_GE(count, 40U) << "the helps have another form";
}

TEST(FlagValues, L3NumbersBeyondTheirRangeAreNamed) {
  std::size_t count = 0;
  for (const Verb& verb : kVerbs) {
    for (const ListedFlag& flag : flags_of(verb)) {
      const bool is_number = flag.value.size() == 1 || flag.value == "PORT" ||
                             flag.value == "SECONDS" || flag.value == "SIZE" ||
                             flag.value == "RATE";
      if (!is_number) continue;
      for (const char* bad : {"99999999999999999999", "-99999999999999999999", "nan", "1e999"}) {
        const Ended ended = given(verb, flag.name, bad);
        EXPECT_EQ(ended.code(), 2) << verb.words << ' ' << flag.name << ' ' << bad;
        EXPECT_THAT(ended.err, HasSubstr(flag.name)) << verb.words << ' ' << bad;
      }
      ++count;
    }
  }
  EXPECT_GE(count, 20U) << "the helps have another form";
}

TEST(FlagValues, M5AnEmptyVariableIsNamed) {
  const auto refused = [](const std::string& line, const std::string& variable) {
    ::unsetenv(variable.substr(0, variable.find('=')).c_str());  // of two the first counts
    const Ended ended = run_command(words(line), {variable});
    EXPECT_EQ(ended.code(), 2) << line << ' ' << variable;
    return ended.err;
  };
  for (const char* name : {"PET_NPROC_PER_NODE", "PET_NNODES", "PET_MASTER_PORT", "PET_STANDALONE",
           "TORCHELASTIC_RESTART_COUNT", "LOCKSTEP_DEATH_NS"}) {
    EXPECT_THAT(refused("run true", concat(name, "=")),
        HasSubstr(concat(name, " is set, but empty; give it a value, or unset it")));
  }
  EXPECT_THAT(refused("run true", "PET_MASTER_PORT=65536"),
      HasSubstr("PET_MASTER_PORT, which stands for --master-port, must be a whole number from 0 to "
                "65535: 65536"));
  EXPECT_THAT(refused("collectives", "RANK="), HasSubstr("RANK is set, but empty"));
  EXPECT_THAT(refused("data fetch mnist /nonexistent/d", "SSL_CERT_FILE="),
      HasSubstr("SSL_CERT_FILE is set"));
}

TEST(FlagValues, L2ACrowdOfRanksNeedsToBeMeant) {
  const Ended refused = run_command(words("run --nproc-per-node 1000 true")).with_code(2);
  EXPECT_THAT(refused.err, HasSubstr("1000 ranks are too many for the "));
  EXPECT_THAT(refused.err, HasSubstr("--oversubscribe"));
  EXPECT_EQ(run_command(words("collectives --nproc-per-node 1000")).code(), 2);
  EXPECT_EQ(run_command(words("run --nproc-per-node 20 --oversubscribe true")).code(), 0);
}

}  // namespace
}  // namespace lockstep::testing
