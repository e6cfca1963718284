#include "tests/accelerator/nccl_meeting.h"

#include <algorithm>

#include "tests/accelerator/late_call.h"
#include "tests/accelerator/runtime.h"

namespace lockstep::emulated {
namespace {

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

PendingCall meet(const std::shared_ptr<Ring>& ring, const MeetingKey& key, int ranks, int part,
    const Part& given, std::size_t stream, const Kernel& kernel) {
  const std::lock_guard lock(ring->mutex);
  const Mark end = meeting_of(*ring, key, ranks).end;
  const ConnectionKey connection(std::get<0>(key), std::get<1>(key));
  return {connection, part, ranks, stream, end, [ring, key, part, given, kernel](Mark arrival) {
            const std::lock_guard meeting_lock(ring->mutex);
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
          }};
}

void Launches::add(PendingCall call) {
  const std::lock_guard lock(ring_->mutex);
  ring_->come[call.connection].insert(call.part);
  ring_->changed.notify_all();
  calls_.push_back(std::move(call));
}

bool Launches::is_connected() const {
  return std::ranges::all_of(calls_, [this](const PendingCall& call) {
    return std::ssize(ring_->come.at(call.connection)) == call.parts;
  });
}

// Calls of a group begin together.
bool Launches::try_launch() {
  {
    const std::lock_guard lock(ring_->mutex);
    if (!is_connected()) return false;
  }
  std::vector<Mark> arrivals;
  for (const PendingCall& call : calls_) arrivals.push_back(streams().mark(call.stream));
  for (std::size_t i = 0; i < calls_.size(); ++i) calls_[i].arrive(arrivals[i]);
  for (const PendingCall& call : calls_) streams().wait(call.stream, call.end);
  calls_.clear();
  return true;
}

bool Launches::launch() {
  {
    std::unique_lock lock(ring_->mutex);
    ring_->changed.wait(lock, [this] { return ring_->is_aborted || is_connected(); });
    if (ring_->is_aborted) return false;
  }
  return try_launch();
}

}  // namespace lockstep::emulated
