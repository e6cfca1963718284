// The rounds of the collective under way; see Note [Rounds].

#include <algorithm>
#include <optional>
#include <sched.h>

#include <c10/util/SmallVector.h>

#include "lockstep/comm/host/engine.h"
#include "lockstep/core/error.h"

namespace lockstep::host {

// What can be done without waiting, the oldest round first except that the next one begins before
// the last one is worked on: so the others find this rank's memory ready when they come to it.
bool Engine::step(Job& job) {
  if (may_end(job)) {
    end_round(job);
  } else if (may_begin(job)) {
    begin_round(job);
  } else if (may_work(job)) {
    work_on_round(job);
  } else {
    return false;
  }
  return true;
}

bool Engine::may_begin(const Job& job) {
  constexpr auto kAhead = static_cast<std::int64_t>(RankSlot::kRounds);
  if (job.begun == job.cut.rounds() || job.begun - job.ended == kAhead) return false;
  const std::uint64_t round = rounds_ + 1;
  return round <= RankSlot::kRounds || all_finished(round - RankSlot::kRounds);
}

bool Engine::may_work(const Job& job) const {
  return job.worked < job.begun && all_arrived(job.round_to_work());
}

bool Engine::may_end(const Job& job) {
  if (job.ended == job.worked) return false;
  return !job.waits_for_others() || all_finished(job.round_to_end());
}

// A rank that has not arrived must not go on after an abort, one that has may: where nobody waits
// for the others to finish, the one that gave up may have come to the end itself.
void Engine::begin_round(Job& job) {
  if (region_->aborted()) throw CommError(region_->abort_reason());
  const std::uint64_t round = ++rounds_;
  Arrival& arrival = region_->slot(rank_).arrival(round);
  if (job.begun == 0) introduce(job, arrival.descriptor);
  if (job.staged) {
    copy_in(job.collective, job.cut.chunk(job.begun), region_->staging(rank_, round), rank_,
        region_->size());
  }
  ++job.begun;
  arrival.round.store(round, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // Note [Alarms]
  if (all_arrived(round)) region_->ring_others(rank_);
}

// Decides how the others will see this rank's memory and tells them.
void Engine::introduce(Job& job, Descriptor& descriptor) {
  const Collective& collective = job.collective;
  Exposure exposure;
  if (collective.input != nullptr) {
    std::optional<Exposure> visible;
    if (!job.at_once) visible = space_->expose(collective.input, collective.input_bytes());
    job.staged = !visible;
    exposure = visible.value_or(Exposure{Exposure::kStaging, 0});
  } else if (collective.root_writes()) {
    exposure = space_->expose(collective.output, collective.input_bytes()).value_or(Exposure{});
  }
  job.first = rounds_;
  job.cut = job.staged && !job.at_once ? cut_for_staging(collective) : uncut(collective);
  descriptor = {collective.kind, static_cast<std::int32_t>(collective.element),
      static_cast<std::int32_t>(collective.op), collective.root, collective.elements, exposure};
  RankSlot& slot = region_->slot(rank_);
  slot.collective.store(job.number, std::memory_order_relaxed);
  slot.kind.store(static_cast<std::int32_t>(collective.kind), std::memory_order_relaxed);
  slot.core.store(::sched_getcpu() + 1, std::memory_order_relaxed);
}

// All are in the first round, so each has done with the rounds of the collectives before.
void Engine::meet(Job& job) {
  verify(job);  // first, so that all ranks say of unlike calls what they are
  all_finished_ = std::max(all_finished_, job.first - 1);
  const Collective& collective = job.collective;
  const std::size_t stride =
      static_cast<std::size_t>(collective.elements) * collective.element_bytes();
  for (int rank = 0; rank < region_->size(); ++rank) {
    const Exposure exposure = region_->slot(rank).arrival(job.first).descriptor.exposure;
    const bool own = rank == rank_, staging = exposure.segment == Exposure::kStaging;
    const bool seen = !own && shows(job, rank);
    if (seen) job.held.push_back(space_->resolve(rank, exposure));
    std::byte* const others = seen ? job.held.back().get() : nullptr;
    job.exposed.push_back({own ? collective.input : others, stride});
    if (staging && !job.at_once) job.cut = cut_for_staging(collective);
  }
  job.written_by_root = !collective.gives(rank_) && shows(job, rank_);
  if (job.written_by_root) job.exposed[static_cast<std::size_t>(rank_)].first = collective.output;
}

// A receiver of a broadcast counts where its tensor lies in the root's segment: the root sees that.
bool Engine::shows(const Job& job, int rank) const {
  const auto segment = [&](int of) {
    return region_->slot(of).arrival(job.first).descriptor.exposure.segment;
  };
  if (segment(rank) == Exposure::kNothing || segment(rank) == Exposure::kStaging) return false;
  return job.collective.gives(rank) || segment(rank) == segment(job.collective.root);
}

void Engine::work_on_round(Job& job) {
  const std::uint64_t round = job.round_to_work();
  if (job.worked == 0) meet(job);
  // Staging buffers stay; the tensors of a rank that has given up may be gone.
  if (!job.at_once && region_->aborted()) throw CommError(region_->abort_reason());
  const Chunk chunk = job.cut.chunk(job.worked);
  c10::SmallVector<ChunkView, 16> views;
  for (int rank = 0; rank < region_->size(); ++rank) views.push_back(view_of(job, chunk, rank));
  exchange(job.collective, chunk, views, rank_);
  ++job.worked;
  region_->slot(rank_).finished.store(round, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (all_finished(round)) region_->ring_others(rank_);
}

ChunkView Engine::view_of(const Job& job, const Chunk& chunk, int rank) const {
  const std::size_t bytes = job.collective.element_bytes();
  const ChunkView& whole = job.exposed[static_cast<std::size_t>(rank)];
  if (whole.first == nullptr) {
    if (!job.collective.gives(rank)) return {};
    return {
        region_->staging(rank, job.round_to_work()), static_cast<std::size_t>(chunk.count) * bytes};
  }
  return {whole.first + static_cast<std::size_t>(chunk.begin) * bytes, whole.piece_stride};
}

void Engine::end_round(Job& job) {
  if (job.copies_out()) {
    copy_out(job.collective, job.cut.chunk(job.ended), region_->staging(rank_, job.round_to_end()),
        rank_, region_->size());
  }
  ++job.ended;
  job.complete = job.ended == job.cut.rounds();
  if (job.complete) job.held.clear();
}

bool Engine::all_arrived(std::uint64_t round) const {
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (!region_->slot(rank).has_arrived(round)) return false;
  }
  return true;
}

bool Engine::all_finished(std::uint64_t round) {
  if (round <= all_finished_) return true;
  for (int rank = 0; rank < region_->size(); ++rank) {
    if (!region_->slot(rank).has_finished(round)) return false;
  }
  all_finished_ = round;
  return true;
}

bool Engine::shares_core() const {
  const int own = ::sched_getcpu() + 1;
  region_->slot(rank_).core.store(own, std::memory_order_relaxed);
  for (int rank = 0; rank < region_->size(); ++rank) {
    const bool is_here = region_->slot(rank).core.load(std::memory_order_relaxed) == own;
    if (rank != rank_ && is_here && !region_->alarm(rank).is_set()) return true;
  }
  return false;
}

}  // namespace lockstep::host
