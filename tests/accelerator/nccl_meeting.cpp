#include "tests/accelerator/nccl_meeting.h"

#include <utility>

#include "tests/accelerator/late_call.h"
#include "tests/accelerator/runtime.h"

namespace lockstep::emulated {
namespace {

// Calls of a group begin together.
struct PendingCall {
  std::size_t stream;
  Mark end;
  std::function<void(Mark)> arrive;
};
thread_local int group_depth = 0;
thread_local std::vector<PendingCall> pending;

void begin_pending() {
  std::vector<Mark> arrivals;
  for (const PendingCall& call : pending) arrivals.push_back(streams().mark(call.stream));
  for (std::size_t i = 0; i < pending.size(); ++i) pending[i].arrive(arrivals[i]);
  for (const PendingCall& call : pending) streams().wait(call.stream, call.end);
  pending.clear();
}

Meeting& meeting_of(Ring& ring, const MeetingKey& key, int ranks) {
  Meeting& meeting = ring.meetings[key];
  if (meeting.parts.empty()) {
    meeting.end = streams().make_open();
    meeting.parts.resize(static_cast<std::size_t>(ranks));
    meeting.missing = ranks;
    if (ring.is_aborted) streams().close(meeting.end.stream);
  }
  return meeting;
}

}  // namespace

Mark meet(const std::shared_ptr<Ring>& ring, const MeetingKey& key, int ranks, int part,
    const Part& given, std::size_t stream, const Kernel& kernel) {
  const Mark end = [&] {
    const std::lock_guard lock(ring->mutex);
    return meeting_of(*ring, key, ranks).end;
  }();
  pending.push_back({stream, end, [ring, key, part, given, kernel](Mark arrival) {
                       const std::lock_guard lock(ring->mutex);
                       Meeting& meeting = ring->meetings[key];
                       meeting.parts[static_cast<std::size_t>(part)] = given;
                       streams().wait(meeting.end.stream, arrival);
                       if (--meeting.missing > 0) return;
                       streams().enqueue(meeting.end.stream, [parts = meeting.parts, kernel] {
                         const KernelDispatch dispatch;
                         kernel(parts);
                       });
                       streams().close(meeting.end.stream);
                       ring->meetings.erase(key);
                     }});
  if (group_depth == 0) begin_pending();
  return end;
}

void begin_group() { ++group_depth; }

void end_group() {
  if (--group_depth == 0) begin_pending();
}

}  // namespace lockstep::emulated
