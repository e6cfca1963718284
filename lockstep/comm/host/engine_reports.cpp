// The engine's messages when ranks disagree, are late or are lost.

#include "lockstep/comm/host/engine.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::host {
namespace {

std::string describe(const Descriptor& descriptor) {
  const auto element = static_cast<at::ScalarType>(descriptor.element);
  std::string text = concat(name_of(descriptor.kind), " of ", descriptor.elements, " ",
      c10::toString(element), " elements");
  if (descriptor.root >= 0) text += concat(", root ", descriptor.root);
  return text;
}

bool agree(const Descriptor& a, const Descriptor& b) {
  return a.kind == b.kind && a.element == b.element && a.op == b.op && a.root == b.root &&
         a.elements == b.elements;
}

}  // namespace

std::string Job::describe() const {
  if (collective.kind == Kind::kBarrier) return concat("barrier #", number);
  return concat(name_of(collective.kind), " #", number, " (", c10::toString(collective.element),
      ", ", collective.elements, " elements)");
}

void Engine::verify(const Job& job) const {
  const Descriptor& own = region_->slot(rank_).arrival(job.first).descriptor;
  for (int rank = 0; rank < region_->size(); ++rank) {
    const Descriptor& other = region_->slot(rank).arrival(job.first).descriptor;
    if (agree(own, other)) continue;
    // The program's fault: the same ranks would do the same again.
    throw InvalidArgument(
        concat("collective #", job.number, ": the ranks do not make the same call: rank ", rank_,
            " calls ", describe(own), ", rank ", rank, " calls ", describe(other)));
  }
}

// A rank is late in arriving where this one could work, else in finishing what it could end, or
// what would free a buffer for the next round.
std::vector<int> Engine::missing() const {
  const Job& job = *jobs_.front();
  const bool arriving = job.worked < job.begun;
  const std::uint64_t unfinished =
      job.ended < job.worked ? job.round_to_end() : rounds_ + 1 - RankSlot::kRounds;
  std::vector<int> ranks;
  for (int rank = 0; rank < region_->size(); ++rank) {
    RankSlot& slot = region_->slot(rank);
    const bool there =
        arriving ? slot.has_arrived(job.round_to_work()) : slot.has_finished(unfinished);
    if (!there) ranks.push_back(rank);
  }
  return ranks;
}

std::string Engine::lost(int rank) const {
  if (watch_) return watch_->lost(rank);
  return region_->slot(rank).left.load() != 0 ? concat("rank ", rank, " has left the group") : "";
}

// The first collective under way is the one that holds up all others.
void Engine::inspect(const Job&, std::chrono::milliseconds waited) const {
  const Job& job = *jobs_.front();
  std::vector<std::string> late;
  for (const int rank : missing()) {
    const std::string how = lost(rank);
    // A rank may have done its part just before it ended, so its counter is read again.
    const std::vector<int> still = missing();
    const bool is_missing = std::find(still.begin(), still.end(), rank) != still.end();
    if (!how.empty() && is_missing) throw CommError(concat(job.describe(), ": ", how));
    const RankSlot& slot = region_->slot(rank);
    const auto kind = static_cast<Kind>(slot.kind.load());
    late.push_back(
        concat("rank ", rank, " (last seen in ", name_of(kind), " #", slot.collective.load(), ")"));
  }
  if (waited < timeout() || late.empty()) return;
  throw TimeoutError(concat(job.describe(), " on rank ", rank_, ": waited ", timeout().count(),
      " ms for ", joined(late)));
}

void Engine::inspect(const Message& message, std::chrono::milliseconds waited) const {
  const std::string how = lost(message.peer);
  if (!how.empty()) throw CommError(concat(message.describe(), ": ", how));
  if (waited < timeout()) return;
  throw TimeoutError(
      concat(message.describe(), " on rank ", rank_, ": waited ", timeout().count(), " ms"));
}

}  // namespace lockstep::host
