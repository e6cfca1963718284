// Ranks of several launchers that do not find one another, or find strangers.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/process/command.h"

#include "lockstep/core/error.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainMeeting : public ::testing::Test {
 protected:
  /// Returns the command of one of several launchers that are to meet.
  Words launcher(int nodes, int node, int ranks, const std::string& flags = "") const {
    Words all = words(concat("run --nnodes ", nodes, " --node-rank ", node, " --nproc-per-node ",
        ranks, " --master-addr ", master_, " --master-port ", port_, " --"));
    all.push_back(built_lockstep());
    const Words train = words(concat(
        "train --model toy --data mock --max-steps 2 --output ", folder_.file("run"), " ", flags));
    all.insert(all.end(), train.begin(), train.end());
    return all;
  }

  std::string master_ = "127.0.0.1";
  int port_ = net::ReservedPort().number();
  TemporaryFolder folder_;
};

TEST_F(TrainMeeting, ARankThatDoesNotComeIsWaitedForAsLongAsAsked) {
  EXPECT_THAT(run_command(launcher(2, 0, 1, "--timeout 1s")).with_code(5).err,
      AllOf(HasSubstr("waited 1000 ms for rank 1 of 2"), Not(HasSubstr("frame #"))));
  const auto second = run_command(launcher(2, 1, 1, "--timeout 1s")).with_code(5);
  EXPECT_THAT(second.err, AllOf(HasSubstr(concat("no connection to 127.0.0.1:", port_,
                                    " within 1000 ms: rank 0 does not listen there")),
                              Not(HasSubstr("frame #"))));
}

TEST_F(TrainMeeting, AMasterWithoutAnAddressIsNamedOnce) {
  master_ = "no-such-host.invalid";
  const auto run = run_command(launcher(2, 1, 3, "--timeout 1s")).with_code(5);
  EXPECT_EQ(count_of("no connection to no-such-host.invalid", run.err), 1) << run.err;
  EXPECT_THAT(run.err, Not(HasSubstr("frame #")));
  EXPECT_LE(count_of("\n", run.err), 4) << run.err;
}

TEST_F(TrainMeeting, WorldsOfAnotherSizeAreToldApart) {
  Command first(launcher(2, 0, 1)), second(launcher(2, 1, 2));
  for (Command* command : {&first, &second}) {
    const auto run = command->wait().with_code(2);
    EXPECT_THAT(run.err, HasSubstr("has a world of 4 ranks, rank 0 at 127.0.0.1:"));
    EXPECT_LE(count_of("\n", run.err), 4) << run.err;
  }
}

TEST_F(TrainMeeting, TwoHostsOfOneNumberAreToldApart) {
  Command first(launcher(3, 0, 1)), second(launcher(3, 1, 1)), third(launcher(3, 1, 1));
  for (Command* command : {&first, &second, &third}) {
    const auto run = command->wait().with_code(2);
    EXPECT_THAT(run.err, HasSubstr("two processes are rank 1 of the world at 127.0.0.1:"));
  }
}

/// Writes nonsense to a port of this host as soon as somebody listens there.
void send_garbage(int port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<in_port_t>(port));
  const bool sent = eventually([&] {
    const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* address = reinterpret_cast<const sockaddr*>(&place);
    if (::connect(socket.get(), address, sizeof(place)) != 0) return false;
    // What a store takes for a client (0 and this number), which then names a key of 2^64 letters.
    const std::string nonsense = std::string("\0\xce\xf7\x85\x3c\x01", 6) + std::string(64, '\xff');
    return ::send(socket.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL) > 0;
  });
  EXPECT_TRUE(sent);
}

TEST_F(TrainMeeting, GarbageAtThePortShowsNoFrames) {
  Command first(launcher(2, 0, 1));
  send_garbage(port_);
  Command second(launcher(2, 1, 1));
  for (Command* command : {&first, &second}) {
    EXPECT_THAT(command->wait().with_code(0).err, Not(HasSubstr("frame #")));
  }
}

// Four ranks fail alike.
TEST_F(TrainMeeting, OneErrorOfAllRanksIsShownOnce) {
  const auto run = train("--nproc-per-node 4 --model toy --data mnist:" + folder_.file("none") +
                         " --output " + folder_.file("run"));
  EXPECT_EQ(run.code(), 3) << run.err;
  EXPECT_EQ(count_of("the run failed", run.err), 1) << run.err;
  EXPECT_EQ(count_of(folder_.file("none"), run.err), 1) << run.err;
  EXPECT_LE(count_of("\n", run.err), 4) << run.err;
  int logged = 0;
  for (int rank = 1; rank < 4; ++rank) {
    const auto log = contents_so_far(folder_.file(concat("run/logs/rank-", rank, ".log")));
    logged += log.find(folder_.file("none")) != std::string::npos;
  }
  EXPECT_GE(logged, 1) << "what is not shown is in the logs";
}

}  // namespace
}  // namespace lockstep::testing
