// Messages that are matched by their tag, and memory that a rank makes without the others.

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/comm/backend.h"
#include "lockstep/comm/host/own_segments.h"
#include "lockstep/comm/host_backends.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

// Ranks in shared memory, as threads of this process, whose messages are matched by tag.
void run_tagged(int size, const std::function<void(ShmBackend&, ProcessGroup)>& body) {
  const Store store = memory_store();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = ShmBackend::create(store, "test", rank, size, std::chrono::seconds(60));
      backend->match_tags();
      backend->barrier().wait();
      body(*backend, ProcessGroup(backend));
    });
  }
}

torch::Tensor row_of(std::int64_t elements, int value) {
  return torch::full({elements}, value, torch::kInt);
}

torch::Tensor received(
    const ProcessGroup& group, std::int64_t elements, int from, int tag, int* sender = nullptr) {
  torch::Tensor tensor = row_of(elements, -1);
  Work work = group.recv(tensor, from, tag);
  work.wait();
  if (sender != nullptr) *sender = work.sender();
  return tensor;
}

TEST(TaggedMessages, AreReceivedInAnyOrderOfTags) {
  run_tagged(2, [](ShmBackend&, const ProcessGroup& group) {
    constexpr std::int64_t kLong = 100'000;  // several letters
    if (group.rank() == 0) {
      group.send(row_of(kLong, 1), 1, 5).wait();
      group.send(row_of(3, 2), 1, 6).wait();
      group.send(row_of(kLong, 3), 1, 5).wait();
      group.send(row_of(0, 4), 1, 7).wait();
    } else {
      received(group, 0, 0, 7);
      EXPECT_TRUE(received(group, 3, 0, 6).equal(row_of(3, 2)));
      EXPECT_TRUE(received(group, kLong, 0, 5).equal(row_of(kLong, 1)));
      EXPECT_TRUE(received(group, kLong, 0, 5).equal(row_of(kLong, 3)));
    }
  });
}

TEST(TaggedMessages, OfAnyRankNameTheirSender) {
  run_tagged(3, [](ShmBackend&, const ProcessGroup& group) {
    if (group.rank() != 0) return group.send(row_of(4, group.rank()), 0, 1).wait();
    std::vector<int> senders(2);
    for (int& sender : senders) {
      const torch::Tensor tensor = received(group, 4, kAnyRank, 1, &sender);
      EXPECT_TRUE(tensor.equal(row_of(4, sender)));
    }
    EXPECT_THAT(senders, ::testing::UnorderedElementsAre(1, 2));
  });
}

TEST(TaggedMessages, OfAnotherSizeAreRefused) {
  run_tagged(2, [](ShmBackend&, const ProcessGroup& group) {
    if (group.rank() == 0) return group.send(row_of(4, 1), 1, 5).wait();
    EXPECT_THAT(message_of<InvalidArgument>([&] { received(group, 5, kAnyRank, 5); }),
        HasSubstr(
            "recv from any rank, tag 5 (Int, 5 elements): the sender's next message has tag 5 "
            "(Int, 4 elements)"));
  });
}

// As Python's deleter waits for the interpreter, whose holder may wait for the group's messages.
TEST(TaggedMessages, AreReleasedWhereTheirDeleterMayUseTheGroup) {
  run_tagged(2, [](ShmBackend& backend, const ProcessGroup& group) {
    if (group.rank() == 1) {
      group.barrier().wait();
      return group.send(row_of(1, 7), 0, 5).wait();
    }
    int number = 0;
    bool is_released = false;
    const auto release = [&](void*) {
      backend.advance_messages();
      is_released = true;
    };
    static_cast<void>(group.recv(torch::from_blob(&number, {1}, release, torch::kInt), 1, 5));
    group.barrier().wait();
    while (!is_released) backend.advance_messages();
    EXPECT_EQ(number, 7);
  });
}

TEST(TaggedMessages, AreNotReceivedFromAnyRankElsewhere) {
  run_ranks(2, [](const ProcessGroup& group) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { received(group, 1, kAnyRank, 0); }),
        HasSubstr("from must be a rank of the group"));
  });
}

TEST(OwnSegments, AreReducedInPlace) {
  run_tagged(3, [](ShmBackend& backend, const ProcessGroup& group) {
    for (int turn = 0; turn < 3; ++turn) {
      const auto own =
          backend.allocate(100'000 + group.rank(), torch::kFloat).narrow(0, 0, 100'000);
      EXPECT_TRUE(host::OwnSegments::of_this_process()->expose(own.data_ptr(), own.nbytes()));
      own.fill_(group.rank() + turn);
      group.all_reduce(own).wait();
      EXPECT_TRUE(own.equal(torch::full({100'000}, 3 + 3 * turn, torch::kFloat)));
      group.broadcast(own.fill_(group.rank()), 2).wait();
      EXPECT_TRUE(own.equal(torch::full({100'000}, 2, torch::kFloat)));
    }
  });
}

// A rank that is slow to notice may still read or write it.
TEST(OwnSegments, OfAFailedCollectiveAreNotUsedAgain) {
  const void* place = nullptr;
  run_tagged(2, [&](ShmBackend& backend, const ProcessGroup& group) {
    if (group.rank() == 1) return group.abort("enough");
    const torch::Tensor own = backend.allocate(100'000, torch::kFloat);
    place = own.data_ptr();
    EXPECT_THROW(group.all_reduce(own).wait(), CommError);
  });
  EXPECT_NE(host::OwnSegments::of_this_process()->allocate(400'000).get(), place);
}

}  // namespace

namespace host {
namespace {

TEST(OwnSegments, AreSeenByOthersAndUsedAgain) {
  const auto own = std::make_shared<OwnSegments>();
  OthersSegments others({::getpid()});
  auto first = own->allocate(10'000);
  const auto exposure = own->expose(first.get() + 8, 100);
  ASSERT_TRUE(exposure.has_value());
  first.get()[8] = std::byte{7};
  const auto seen = others.resolve(0, *exposure);
  EXPECT_NE(seen.get(), first.get() + 8);
  EXPECT_EQ(*seen, std::byte{7});

  std::byte* const place = first.get();
  first.reset();
  EXPECT_EQ(own->allocate(9'000).get(), place);
  EXPECT_NE(own->allocate(2'000).get(), place);  // would leave most of it unused
}

TEST(OwnSegments, KeepNoMoreThanWasInUse) {
  const auto own = std::make_shared<OwnSegments>();
  const auto exposure = *own->expose(own->allocate(10'000).get(), 1);
  const auto larger = own->allocate(30'000);
  EXPECT_ANY_THROW(OthersSegments({::getpid()}).resolve(0, exposure));
  std::byte* const other = own->allocate(10'000).get();
  own->allocate(10'000);
  EXPECT_TRUE(own->expose(other, 1).has_value());
}

TEST(OwnSegments, AreNotTouchedByAForkedProcess) {
  const auto own = std::make_shared<OwnSegments>();
  auto memory = own->allocate(10'000);
  std::byte* const place = memory.get();
  const pid_t child = ::fork();
  memory.reset();
  if (child == 0) ::_exit(own->allocate(10'000).get() == place ? 1 : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(own->allocate(10'000).get(), place);
}

TEST(OwnSegments, ThatHaveGoneAreNotOpened) {
  const auto own = std::make_shared<OwnSegments>();
  auto memory = own->allocate(10'000);
  Exposure exposure = *own->expose(memory.get(), 1);
  exposure.segment += std::uint64_t{1} << 24;  // another number in the same descriptor
  OthersSegments others({::getpid()});
  EXPECT_THAT(message_of<CommError>([&] { others.resolve(0, exposure); }),
      HasSubstr("is not what a rank of this user has made"));
  const int place = 5;
  EXPECT_FALSE(own->expose(&place, sizeof(place)).has_value());
}

}  // namespace
}  // namespace host
}  // namespace lockstep
