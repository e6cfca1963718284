#include <gmock/gmock.h>

#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/host_process.h"
#include "lockstep/launch/hosts/rate.h"
#include "lockstep/launch/hosts/remote.h"

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

HostsOptions two_made() { return {.count = 2, .program = "true", .arguments = {}}; }
HostsOptions two_real() {
  return {.names = {"me@red", "blue"}, .program = "true", .arguments = {}};
}

std::string refusal(const HostsOptions& options) {
  try {
    check_options(options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

TEST(Hosts, ReadRates) {
  EXPECT_EQ(parse_rate("1gbit"), 1'000'000'000);
  EXPECT_EQ(parse_rate("2.5gbit"), 2'500'000'000);
  EXPECT_EQ(parse_rate("100mbit"), 100'000'000);
  EXPECT_EQ(parse_rate("64kbit"), 64'000);
  for (const char* wrong :
       {"", "1", "gbit", "1gb", "1 gbit", "-1gbit", "1kbit", "1e9gbit", "nangbit"}) {
    EXPECT_THROW(parse_rate(wrong), InvalidArgument) << wrong;
  }
}

TEST(Hosts, LetThroughAtOnceWhatTwoMillisecondsCarry) {
  EXPECT_EQ(burst_bytes(1'000'000'000), 250'000);
  EXPECT_EQ(burst_bytes(64'000), 16 * 1024);
}

TEST(Hosts, ReadDrills) {
  EXPECT_EQ(parse_drill("1@2.5").host, 1);
  EXPECT_DOUBLE_EQ(parse_drill("1@2.5").seconds, 2.5);
  for (const char* wrong : {"", "1", "1@", "@2", "1@2s", "a@2", "1@-1", "1@nan"}) {
    EXPECT_THROW(parse_drill(wrong), InvalidArgument) << wrong;
  }
}

TEST(Hosts, RefuseWhatCannotBe) {
  EXPECT_EQ(refusal(two_made()), "");
  EXPECT_EQ(refusal(two_real()), "");
  EXPECT_THAT(refusal({.program = "true", .arguments = {}}), HasSubstr("--count N, or which"));
  HostsOptions options = two_made();
  options.names = {"red"};
  EXPECT_THAT(refusal(options), HasSubstr("--names"));
  options = two_made();
  options.count = 251;
  EXPECT_THAT(refusal(options), HasSubstr("--count must be 1 to 250"));
  options = two_made();
  options.drill = Drill{.host = 2, .seconds = 1};
  EXPECT_THAT(refusal(options), HasSubstr("there is no such host"));
  options = two_made();
  options.program = "";
  EXPECT_THAT(refusal(options), HasSubstr("say what they do"));
  options = two_real();
  options.rate = 1'000'000;
  EXPECT_THAT(refusal(options), HasSubstr("are for hosts that --count makes"));
  options = two_real();
  options.names = {"-oProxyCommand=x"};
  EXPECT_THAT(refusal(options), HasSubstr("no host's name"));
  options = two_made();
  options.master_port = 65535;
  options.max_restarts = 1;
  EXPECT_THAT(refusal(options), HasSubstr("each takes the next port"));
}

TEST(Hosts, TellACommandItsPlace) {
  const auto made = host_variables(two_made(), {.restart = 1, .death_ns = 17}, 1);
  for (const char* variable :
       {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=10.77.77.1", "PET_MASTER_PORT=29501",
        "TORCHELASTIC_RESTART_COUNT=1", "GLOO_SOCKET_IFNAME=eth0", "LOCKSTEP_DEATH_NS=17"}) {
    EXPECT_THAT(made, Contains(variable));
  }
  const auto real = host_variables(two_real(), {.restart = 0, .death_ns = 17}, 0);
  EXPECT_THAT(real, Contains("PET_MASTER_ADDR=red"));
  EXPECT_THAT(real, Not(Contains(HasSubstr("GLOO_"))));
  EXPECT_THAT(real, Not(Contains(HasSubstr("DEATH")))) << "clocks of other machines differ";
}

TEST(Hosts, SetWordsForAShell) {
  EXPECT_EQ(shell_words({"a", "it's", "$X"}), R"('a' 'it'\''s' '$X')");
  EXPECT_THAT(remote_line("/my folder", {"A=1"}, {"run", "-x"}), HasSubstr("/my folder"));
}

}  // namespace
}  // namespace lockstep::launch
