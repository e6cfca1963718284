#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "lockstep/liveness/own_slot.h"
#include "lockstep/liveness/progress_page.h"

namespace lockstep {
namespace {

using Op = Operation;

TEST(GroupRecord, SaysWhatARankHasBegunAndForWhatItWaits) {
  ProgressSlot slot;
  GroupRecord record(&slot, kWorldGroup, 1, 3);
  EXPECT_EQ(read_progress(slot).waiting(), nullptr);
  record.begin(Op::kAllReduce, 16);
  const CallTicket second = record.begin(Op::kBroadcast, 1'000'000'000'000);
  record.begin(Op::kBarrier, 0);
  {
    const CallWait wait(second);
    const RankProgress progress = read_progress(slot);
    const GroupProgress* const group = progress.waiting();
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(group->id, kWorldGroup);
    EXPECT_EQ(group->rank, 1);
    EXPECT_EQ(group->size, 3);
    EXPECT_EQ(group->begun, 3U);
    EXPECT_EQ(group->last, (GroupCall{Op::kBarrier, 0}));
    EXPECT_EQ(group->wait, (GroupProgress::Wait{{Op::kBroadcast, 1'000'000'000'000}, 2}));
  }
  EXPECT_EQ(read_progress(slot).waiting(), nullptr);
}

TEST(GroupRecord, EachBeginningAndEndIsASignOfLife) {
  ProgressSlot slot;
  std::vector<std::uint64_t> seen{read_progress(slot).activity};
  const auto changes = [&] {
    seen.push_back(read_progress(slot).activity);
    return seen.back() != seen[seen.size() - 2];
  };
  auto record = std::make_unique<GroupRecord>(&slot, kWorldGroup, 0, 2);
  const CallTicket ticket = record->begin(Op::kAllReduce, 4);
  EXPECT_TRUE(changes());
  {
    const CallWait wait(ticket);
    EXPECT_FALSE(changes()) << "to wait is none";
  }
  EXPECT_TRUE(changes());
  record->begin_alone(Op::kSend, 4);
  EXPECT_TRUE(changes());
  record.reset();
  EXPECT_TRUE(changes());
  slot.signs.fetch_add(1);
  EXPECT_TRUE(changes());
  slot.step.store(3);
  EXPECT_TRUE(changes());
}

TEST(GroupRecord, AMessageIsNoneOfTheCollectives) {
  ProgressSlot slot;
  GroupRecord record(&slot, kWorldGroup, 0, 2);
  const CallWait wait(record.begin_alone(Op::kRecv, 8));
  const RankProgress progress = read_progress(slot);
  EXPECT_EQ(progress.waiting()->begun, 0U);
  EXPECT_EQ(progress.waiting()->wait, (GroupProgress::Wait{{Op::kRecv, 8}, 0}));
}

TEST(GroupRecord, PartsHaveOneNumberOnAllOfTheirRanksAndNoOther) {
  std::vector<ProgressSlot> slots(4);
  std::vector<std::uint64_t> ids;
  for (int rank = 0; rank < 4; ++rank) {
    ProgressSlot& slot = slots[static_cast<std::size_t>(rank)];
    const GroupRecord world(&slot, kWorldGroup, rank, 4);
    const GroupRecord pair = world.part(&slot, 1, rank / 2 * 2, rank % 2, 2);
    const GroupRecord again = world.part(&slot, 2, rank / 2 * 2, rank % 2, 2);
    const RankProgress progress = read_progress(slot);
    ASSERT_EQ(progress.groups.size(), 3U);
    for (const GroupProgress& group : progress.groups) ids.push_back(group.id);
  }
  EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 3, ids.begin() + 3)) << "ranks 0 and 1";
  EXPECT_TRUE(std::equal(ids.begin() + 6, ids.begin() + 9, ids.begin() + 9)) << "ranks 2 and 3";
  EXPECT_EQ(ids[0], ids[6]);
  EXPECT_NE(ids[1], ids[7]) << "two groups of one split";
  EXPECT_NE(ids[1], ids[2]) << "two splits";
}

TEST(GroupRecord, ManyShareTheLastSlot) {
  ProgressSlot slot;
  std::vector<GroupRecord> records;
  for (std::uint64_t id = 0; id < ProgressSlot::kGroups + 4; ++id)
    records.emplace_back(&slot, 10 + id, 0, 2);
  EXPECT_EQ(read_progress(slot).groups.size(), ProgressSlot::kGroups);
  EXPECT_EQ(read_progress(slot).groups.back().id, kOtherGroups);
  const CallWait wait(records.back().begin(Op::kBarrier, 0));
  EXPECT_NE(read_progress(slot).waiting(), nullptr);
  records.clear();
  EXPECT_EQ(read_progress(slot).groups.size(), 1U) << "the others are free again";
  const GroupRecord next(&slot, kWorldGroup, 0, 2);
  EXPECT_EQ(read_progress(slot).groups.front().begun, 0U);
}

TEST(GroupRecord, WithoutALauncherItIsEmpty) {
  GroupRecord none(nullptr, kWorldGroup, 0, 2);
  EXPECT_TRUE(none.is_empty());
  const CallWait wait(none.begin(Op::kAllReduce, 4));
}

}  // namespace
}  // namespace lockstep
