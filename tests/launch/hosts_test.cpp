#include "lockstep/launch/hosts/hosts.h"

#include <functional>
#include <gmock/gmock.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

HostsOptions two_made() { return {.count = 2, .program = "true", .arguments = {}}; }
HostsOptions two_real() {
  return {.names = {"me@red", "blue"}, .program = "true", .arguments = {}};
}

/// Returns why two hosts with such a change are refused.
std::string refusal(HostsOptions options, const std::function<void(HostsOptions&)>& change) {
  change(options);
  return lockstep::testing::message_of<InvalidArgument>([&] { check_options(options); });
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

TEST(Hosts, ToolsMayWriteMoreThanAPipeHolds) {
  const std::string much = "head -c 300000 /dev/zero";
  run_tool({"sh", "-c", concat(much, "; ", much, " >&2")});
  const std::string text = lockstep::testing::message_of<std::system_error>([&] {
    run_tool({"sh", "-c", concat("echo why >&2; ", much, " >&2; exit 3")});
  });
  EXPECT_THAT(text, HasSubstr(": why: "));
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

TEST(Hosts, RefuseWhatCannotWork) {
  using Options = HostsOptions;
  EXPECT_NO_THROW(check_options(two_made()));
  EXPECT_NO_THROW(check_options(two_real()));
  const auto made = [](auto change) { return refusal(two_made(), change); };
  EXPECT_THAT(
      made([](Options& options) { options.count = 0; }), HasSubstr("give the hosts: --count N"));
  EXPECT_THAT(made([](Options& options) { options.names = {"red"}; }), HasSubstr("--names"));
  EXPECT_THAT(
      made([](Options& options) { options.count = 251; }), HasSubstr("--count must be 1 to 250"));
  EXPECT_THAT(made([](Options& options) { options.drill = Drill{.host = 2, .seconds = 1}; }),
      HasSubstr("there is no such host"));
  EXPECT_THAT(made([](Options& options) { options.program = ""; }), HasSubstr("say what they do"));
  const auto last_port = [](Options& options) {
    options.master_port = 65535;
    options.max_restarts = 1;
  };
  EXPECT_THAT(made(last_port), HasSubstr("each takes the next port"));
  const auto real = [](auto change) { return refusal(two_real(), change); };
  EXPECT_THAT(real([](Options& options) { options.rate = 1'000'000; }),
      HasSubstr("are for hosts that --count makes"));
  EXPECT_THAT(real([](Options& options) { options.names = {"-oProxyCommand=x"}; }),
      HasSubstr("not the name of a host"));
}

TEST(Hosts, GiveACommandItsPlace) {
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

TEST(Hosts, QuoteWordsForAShell) {
  EXPECT_EQ(shell_words({"a", "it's", "$X"}), R"('a' 'it'\''s' '$X')");
  EXPECT_THAT(
      remote_line("/my folder", {"run", "-x"}, std::chrono::seconds(1)), HasSubstr("/my folder"));
}

TEST(Hosts, PassOnWhatAUserSetsForAllHosts) {
  EXPECT_THAT(travelling_variables({"OMP_NUM_THREADS=1", "LOCKSTEP_SECRET=s", "NCCL_DEBUG=INFO",
                  "LOCKSTEP_GUARDIAN=1", "LOCKSTEP_STORE_KEY=2", "LOCKSTEP_SECRETS=3", "HOME=/"}),
      ElementsAre("OMP_NUM_THREADS=1", "LOCKSTEP_SECRET=s", "NCCL_DEBUG=INFO"));
  EXPECT_EQ(variable_lines({"A=1", "B= it's $X "}), "A=1\nB= it's $X \n\n");
  EXPECT_THROW(variable_lines({"OMP_X=a\nb"}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::launch
