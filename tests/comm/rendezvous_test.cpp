// Where ranks meet: what an init method may say, and worlds that are formed by it.

#include "lockstep/comm/rendezvous.h"

#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/comm/store.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Kind = InitMethod::Kind;
using std::chrono::milliseconds;

std::string refusal_of_text(const std::string& url) {
  return testing::message_of<InvalidArgument>([&] { parse_init_method(url); });
}

TEST(InitMethodText, SaysWhereRanksMeet) {
  EXPECT_EQ(parse_init_method("").kind, Kind::kEnvironment);
  EXPECT_EQ(parse_init_method("env://").kind, Kind::kEnvironment);
  const InitMethod tcp = parse_init_method("tcp://node0:29500");
  EXPECT_EQ(tcp.kind, Kind::kTcp);
  EXPECT_EQ(tcp.host, "node0");
  EXPECT_EQ(tcp.port, 29500);
  EXPECT_EQ(parse_init_method("tcp://[::1]:80").host, "::1");
  const InitMethod file = parse_init_method("file:///tmp/a b");
  EXPECT_EQ(file.kind, Kind::kFile);
  EXPECT_EQ(file.path, "/tmp/a b");
}

TEST(InitMethodText, WhatIsWrongIsSaid) {
  const std::string what = "init_process_group: the init method ";
  EXPECT_EQ(refusal_of_text("mpi://"),
      what + "must be env://, tcp://HOST:PORT or file:///PATH, not mpi://");
  EXPECT_THAT(refusal_of_text("/tmp/meeting"), HasSubstr("file:///PATH, not /tmp/meeting"));
  EXPECT_EQ(refusal_of_text("tcp://node0"),
      what + "tcp://node0 needs an address and a port: tcp://HOST:PORT");
  EXPECT_THAT(refusal_of_text("tcp://:29500"), HasSubstr("needs an address"));
  for (const char* port : {"0", "65536", "http", "-1", "", "80x"}) {
    EXPECT_EQ(refusal_of_text(concat("tcp://node0:", port)),
        concat(what, "tcp://node0:", port, " has no port between 1 and 65535: ", port));
  }
  EXPECT_THAT(refusal_of_text("tcp://::1:29500"), HasSubstr("needs brackets"));
  EXPECT_EQ(refusal_of_text("file://tmp/meeting"),
      what +
          "file://tmp/meeting needs an absolute path after two slashes, so three in all: "
          "file:///tmp/meeting");
  EXPECT_THAT(refusal_of_text("file://"), HasSubstr("absolute path"));
  EXPECT_THAT(refusal_of_text("file:///tmp/"), HasSubstr("names a folder"));
  EXPECT_THAT(
      refusal_of_text("tcp://node0:1?rank=0"), HasSubstr("rank and world size as InitOptions"));
}

InitOptions options_for(const std::string& url, int rank) {
  return {.backend = "gloo",
      .timeout = std::chrono::seconds(30),
      .init_method = url,
      .rank = rank,
      .world_size = 2};
}

/// Runs two ranks, threads here, that meet at this place.
void with_two_ranks_at(
    const std::string& url, const std::function<void(const InitOptions&)>& body) {
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] { body(options_for(url, rank)); });
}

/// The same in a new file, of ranks that ask for this backend.
void with_two_ranks(
    const std::string& backend, const std::function<void(const InitOptions&)>& body) {
  const testing::TemporaryFolder folder;
  with_two_ranks_at("file://" + folder.file("meeting"), [&](InitOptions options) {
    options.backend = backend;
    body(options);
  });
}

void expect_sum_over_two(const ProcessGroup& world) {
  const torch::Tensor sum = torch::full({2}, world.rank() + 1.0);
  world.all_reduce(sum).wait();
  EXPECT_TRUE(sum.equal(torch::full({2}, 3.0)));
}

void expect_world_at(const std::string& url) {
  with_two_ranks_at(url, [](const InitOptions& options) {
    const ProcessGroup world = init_process_group(options);
    EXPECT_EQ(world.rank(), options.rank);
    EXPECT_EQ(world.size(), 2);
    expect_sum_over_two(world);
  });
}

std::string refusal_of(const InitOptions& options) {
  return testing::message_of<InvalidArgument>([&] { init_process_group(options); });
}

TEST(InitProcessGroup, MeetsInAFileThatGoesWithTheLastRank) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() / "meeting";
  expect_world_at("file://" + path);
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "the last rank removes the file";
  expect_world_at("file://" + path);
}

TEST(InitProcessGroup, DifferentBackendsAreRefusedOnAllRanks) {
  with_two_ranks("gloo", [](InitOptions options) {
    if (options.rank == 0) options.backend = "auto";
    EXPECT_EQ(refusal_of(options),
        "init_process_group: the ranks ask for different backends: auto on rank 0, gloo on rank "
        "1");
  });
}

TEST(InitProcessGroup, TheFileGoesHoweverTheRanksLeave) {
  const testing::TemporaryFolder folder;
  for (int time = 0; time < 100; ++time) {
    const std::string path = folder.path() / concat("meeting-", time);
    std::vector<Store> users;
    for (int user = 0; user < 3; ++user) users.push_back(file_store(path, 3));
    std::vector<std::jthread> leaving;
    for (Store& user : users) leaving.emplace_back([&user] { user.reset(); });
    leaving.clear();
    ASSERT_NE(::access(path.c_str(), F_OK), 0) << time;
  }
}

// All ranks end, and at once: none waits for one without a network.
TEST(InitProcessGroup, AnInterfaceThatIsNotThereIsNamedOnAllRanks) {
  ::setenv("GLOO_SOCKET_IFNAME", "no-such", 1);
  with_two_ranks("gloo", [](const InitOptions& options) {
    EXPECT_THAT(refusal_of(options),
        HasSubstr("rank 0: GLOO_SOCKET_IFNAME=no-such is no network interface of this host"));
  });
  ::unsetenv("GLOO_SOCKET_IFNAME");
}

// Any program may lock the folder, which may be /tmp, for as long as it likes.
TEST(InitProcessGroup, AFolderThatAnotherProgramHasLockedHoldsNobodyUp) {
  const testing::TemporaryFolder folder;
  const FileDescriptor lock(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  auto left =
      std::async(std::launch::async, [&] { file_store(folder.path() / "meeting", 1).reset(); });
  EXPECT_EQ(left.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  ::flock(lock.get(), LOCK_UN);
}

TEST(InitProcessGroup, AFileOfAnEarlierRunIsRefused) {
  const testing::TemporaryFolder folder;
  InitOptions options = options_for("file://" + (folder.path() / "meeting").string(), 0);
  options.timeout = milliseconds(50);
  const auto join = [&] { init_process_group(options); };
  EXPECT_EQ(testing::message_of<TimeoutError>(join), "backend: waited 50 ms for rank 1 of 2");
  const std::string text = testing::message_of<InvalidArgument>(join);
  EXPECT_THAT(text, HasSubstr("rank 0 is already in the file"));
  EXPECT_THAT(text, HasSubstr((folder.path() / "meeting").string()));
}

TEST(InitProcessGroup, AFileThatCannotBeMadeIsNamed) {
  const testing::TemporaryFolder folder;
  for (const std::string& path :
      {folder.path().string() + "/none/meeting", folder.path().string()}) {
    EXPECT_THAT(testing::message_of<std::system_error>(
                    [&] { init_process_group(options_for("file://" + path, 0)); }),
        HasSubstr("store: cannot open the file in which ranks meet " + path));
  }
}

TEST(InitProcessGroup, AnAddressWithoutRankZeroIsNamed) {
  InitOptions options = options_for("tcp://127.0.0.1:1", 1);  // nobody listens there
  options.timeout = milliseconds(300);
  EXPECT_THAT(testing::message_of<CommError>([&] { init_process_group(options); }),
      HasSubstr("no connection to 127.0.0.1:1"));
}

TEST(InitProcessGroup, RankAndWorldSizeMustBeKnown) {
  EXPECT_THAT(refusal_of({.init_method = "tcp://127.0.0.1:29500"}),
      HasSubstr("RANK is not set; start the program by a launcher, or give InitOptions::rank"));
  EXPECT_THAT(refusal_of({.init_method = "file:///tmp/meeting", .rank = 0}),
      HasSubstr("WORLD_SIZE is not set; start the program by a launcher, or give "
                "InitOptions::world_size"));
  EXPECT_THAT(refusal_of({.rank = 0, .world_size = 2}), HasSubstr("MASTER_ADDR is not set"));
}

// Denies pidfd_open to this thread and those that it starts, as an old kernel or a container does.
void deny_watching_processes() {
  const sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), const_cast<sock_filter*>(filter)};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

// Two ranks on one host, the second of which may not watch the first.
void with_a_rank_that_is_kept_from_watching(
    const std::string& backend, const std::function<void(const InitOptions&)>& body) {
  with_two_ranks(backend, [&](const InitOptions& options) {
    if (options.rank == 1) deny_watching_processes();
    body(options);
  });
}

TEST(InitProcessGroup, AutoTakesGlooWhereOneRankCannotShareMemory) {
  with_a_rank_that_is_kept_from_watching("auto", [](const InitOptions& options) {
    const ProcessGroup world = init_process_group(options);
    EXPECT_EQ(world.backend_name(), "gloo");
    expect_sum_over_two(world);
  });
}

TEST(InitProcessGroup, ShmSaysWhichRankCannotShareMemoryAndWhy) {
  with_a_rank_that_is_kept_from_watching("shm", [](const InitOptions& options) {
    const std::string text = refusal_of(options);
    EXPECT_THAT(text, HasSubstr("shm: rank 1: cannot watch the process"));
    EXPECT_THAT(text, HasSubstr("(pidfd_open): Function not implemented; use the backend gloo"));
  });
}

TEST(InitProcessGroup, AutoTakesSharedMemoryOnOneHost) {
  with_two_ranks("auto", [](const InitOptions& options) {
    EXPECT_EQ(init_process_group(options).backend_name(), "shm");
  });
}

TEST(InitProcessGroup, AWorldOfOneMeetsNobody) {
  const auto world =
      init_process_group({.init_method = "tcp://127.0.0.1:1", .rank = 0, .world_size = 1});
  EXPECT_EQ(world.backend_name(), "single");
}

}  // namespace
}  // namespace lockstep
