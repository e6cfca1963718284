// Work::done(): what is asked for is done in the end, by asking alone; who only asks learns what
// who waits learns; and groups may be waited for in any order.

#include <utility>

#include "contract.h"
#include "tests/support/shared_flag.h"

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

using testing::Contract;
using testing::SharedFlag;

class Asking : public Contract {};
INSTANTIATE_TEST_SUITE_P(Backends, Asking,
    ::testing::Combine(::testing::Values("threads", "shm", "gloo"), ::testing::Values(2, 3)),
    testing::contract_name);
INSTANTIATE_TEST_SUITE_P(Hosts, Asking, testing::kHosts, testing::contract_name);

// Asks until the work is done; false after twenty seconds, a guard against asking for ever.
bool becomes_done(Work& work) {
  const Stopwatch stopwatch;
  while (!work.done() && stopwatch.seconds() < 20) std::this_thread::yield();
  return work.done();
}

// Asks for all in turn, as a program does that has something else to do in between.
bool all_become_done(std::vector<Work>& works) {
  bool done = true;
  for (Work& work : works) done = becomes_done(work) && done;
  return done;
}

torch::Tensor number(double value, std::int64_t elements = 3) {
  return torch::full({elements}, value);
}

TEST_P(Asking, CollectivesEndByAskingAlone) {
  run([](ProcessGroup group) {
    const torch::Tensor sum = number(group.rank() + 1.0), cast = number(group.rank());
    const torch::Tensor all = torch::empty({group.size(), 3});
    std::vector<Work> works = {group.all_reduce(sum), group.broadcast(cast, 1),
        group.all_gather(all, number(group.rank())), group.barrier()};
    EXPECT_TRUE(all_become_done(works));
    for (Work& work : works) work.wait();
    EXPECT_TRUE(sum.equal(number(group.size() * (group.size() + 1) / 2.0)));
    EXPECT_TRUE(cast.equal(number(1)));
    for (int rank = 0; rank < group.size(); ++rank) EXPECT_TRUE(all[rank].equal(number(rank)));
  });
}

// From each rank to the next one: a short message, one of several letters, and none at all.
TEST_P(Asking, MessagesEndByAskingAlone) {
  run([](ProcessGroup group) {
    const int next = (group.rank() + 1) % group.size();
    const int before = (group.rank() + group.size() - 1) % group.size();
    for (const std::int64_t elements : {3, 100'001, 0, 5}) {
      const torch::Tensor received = torch::zeros({elements});
      std::vector<Work> works = {
          group.send(number(group.rank(), elements), next), group.recv(received, before)};
      EXPECT_TRUE(all_become_done(works)) << elements;
      for (Work& work : works) work.wait();
      EXPECT_TRUE(received.equal(number(before, elements))) << elements;
    }
  });
}

// More than the mailboxes hold, so the sender depends on the receiver.
TEST_P(Asking, ManyMessagesEndByAskingForTheLast) {
  run([](ProcessGroup group) {
    constexpr int kCount = 600;
    std::vector<torch::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < kCount && group.rank() < 2; ++i) {
      tensors.push_back(number(group.rank() == 0 ? i : -1, 2));
      works.push_back(
          group.rank() == 0 ? group.send(tensors.back(), 1) : group.recv(tensors.back(), 0));
    }
    if (group.rank() < 2) {
      EXPECT_TRUE(becomes_done(works.back()));
    }
    for (Work& work : works) work.wait();
    if (group.rank() != 1) return;
    for (int i = 0; i < kCount; ++i)
      EXPECT_TRUE(tensors[static_cast<std::size_t>(i)].equal(number(i, 2))) << i;
  });
}

TEST_P(Asking, WorkMayBeWaitedForAndAskedForAgain) {
  run([](ProcessGroup group) {
    const torch::Tensor tensor = number(group.rank());
    Work message;
    if (group.rank() == 0) message = group.send(tensor, 1);
    if (group.rank() == 1) message = group.recv(tensor, 0);
    Work collective = group.all_reduce(number(1));
    for (Work* work : {&message, &collective}) {
      work->wait();
      EXPECT_TRUE(work->done());
      work->wait();
    }
    if (group.rank() == 1) {
      EXPECT_TRUE(tensor.equal(number(0)));
    }
  });
}

// As in NCCL, MPI and Gloo: a rank that waits for one group does its part in the others. Small
// tensors would end without that.
TEST_P(Asking, GroupsMayBeWaitedForInAnyOrder) {
  run([](ProcessGroup group) {
    constexpr std::int64_t kElements = 300'000;
    const ProcessGroup first = group.split(0, group.rank()), second = first.split(0, group.rank());
    for (const auto& [one, other] :
        {std::pair{first, second}, std::pair{second, first}, std::pair{group, second}}) {
      const torch::Tensor tensor = number(group.rank() + 1.0, kElements);
      Work sum = other.all_reduce(tensor);
      if (group.rank() % 2 == 1) sum.wait();
      one.barrier().wait();
      sum.wait();
      EXPECT_TRUE(tensor.equal(number(group.size() * (group.size() + 1) / 2.0, kElements)));
    }
  });
}

template <typename Exception>
void expect_to_fail_by_asking(Work work) {
  EXPECT_TRUE(becomes_done(work));
  EXPECT_THROW(work.wait(), Exception);
}

// Rank 1 does nothing until rank 0 has given up.
TEST_P(Asking, WhoOnlyAsksSeesTheDeadline) {
  SharedFlag over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    group.set_timeout(std::chrono::milliseconds(200));
    if (group.rank() == 0) expect_to_fail_by_asking<TimeoutError>(group.all_reduce(number(1)));
    if (group.rank() == 0) over.raise();
    over.wait();
  });
}

TEST_P(Asking, WhoOnlyAsksForAMessageSeesTheDeadline) {
  SharedFlag over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    group.set_timeout(std::chrono::milliseconds(200));
    if (group.rank() == 0) expect_to_fail_by_asking<TimeoutError>(group.recv(number(1), 1));
    if (group.rank() == 0) over.raise();
    over.wait();
  });
}

// Rank 1 leaves the group and lives on until all have noticed; the limit is a minute.
TEST_P(Asking, WhoOnlyAsksSeesALostPeer) {
  SharedFlag over[4];
  run([&](ProcessGroup group) {
    group.barrier().wait();
    const int rank = group.rank(), last = group.size() - 1;
    if (rank == 1) group = ProcessGroup();
    if (rank != 1) expect_to_fail_by_asking<CommError>(group.all_reduce(number(1)));
    over[rank].raise();
    over[0].wait(), over[last].wait();
  });
}

// It leaves once the message is awaited: before, the call itself may fail.
TEST_P(Asking, WhoOnlyAsksForAMessageSeesALostPeer) {
  SharedFlag asked, over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 0) {
      Work message = group.recv(number(1), 1);
      asked.raise();
      expect_to_fail_by_asking<CommError>(std::move(message));
      over.raise();
    } else if (group.rank() == 1) {
      asked.wait();
      group = ProcessGroup();
    }
    over.wait();
  });
}

// A message that nobody asks for any more must not hold up its rank until the deadline.
TEST_P(Asking, AMessageThatIsGivenUpDoesNotHoldUpItsRank) {
  SharedFlag over;
  run([&](ProcessGroup group) {
    group.barrier().wait();
    if (group.rank() == 0) {
      const Stopwatch stopwatch;
      {
        Work never = group.recv(number(1), 1);
        EXPECT_FALSE(never.done());
      }
      EXPECT_LT(stopwatch.seconds(), 30) << "the group's limit is a minute";
      over.raise();
    }
    over.wait();
  });
}

}  // namespace
}  // namespace lockstep
