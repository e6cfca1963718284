#include "lockstep/plan/way.h"

#include <algorithm>
#include <cmath>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/parallel/schedule/flags_of_ways.h"
#include "lockstep/plan/step.h"

namespace lockstep::plan {
namespace {

bool is_whole(double number) { return number == std::floor(number); }

// Model parallel is the schedule that never has two stages busy.
bool is_pipeline(const Way& way) { return way.schedule != ScheduleKind::kSequential; }

std::string settings_text(const Way& way) {
  std::vector<std::string> parts;
  if (way.stages > 1 && is_pipeline(way)) {
    parts.emplace_back(name_of(way.schedule));
    parts.push_back(concat(way.micro_batches, way.micro_batches == 1 ? " chunk" : " chunks"));
  }
  if (way.checkpoint != Checkpoint::kNever) parts.emplace_back("checkpoints");
  if (way.accumulated > 1) parts.push_back(concat(way.accumulated, " passes"));
  if (way.is_sharded) parts.emplace_back("sharded");
  if (way.copies > 1) parts.push_back(concat(way.copies, " copies"));
  if (way.is_pytorch) parts.emplace_back("PyTorch's");
  if (way.reshard == Reshard::kNever) parts.emplace_back("whole until backward");
  if (way.sent_as != SentAs::kAsTheyAre)
    parts.push_back(concat(name_of(way.sent_as), " gradients"));
  return parts.empty() ? "" : concat(" (", joined(parts), ")");
}

// Stages have micro-batches in the place of accumulation.
Way with_settings(Way way, const Way& settings) {
  const std::string kind = kind_of(way);
  if (way.stages == 1) way.accumulated = settings.accumulated;
  const bool is_for_stages = settings.checkpoint == Checkpoint::kExceptLast;
  if (takes_flag(kind, "--checkpoint") && (way.stages > 1 || !is_for_stages))
    way.checkpoint = settings.checkpoint;
  if (takes_flag(kind, "--shard-optimizer")) way.is_sharded = settings.is_sharded;
  if (takes_flag(kind, "--comm-hook")) way.sent_as = settings.sent_as;
  if (takes_flag(kind, "--reshard")) way.reshard = settings.reshard;
  if (takes_flag(kind, "--replicas")) way.copies = settings.copies;
  if (kind == "dp") {
    way.is_pytorch = settings.is_pytorch;
    way.lock_seconds = settings.lock_seconds;
  }
  if (takes_flag(kind, "--bucket-mb")) {
    way.first_bucket_bytes = settings.first_bucket_bytes;
    way.bucket_bytes = settings.bucket_bytes;
  }
  return way;
}

std::string about_batch(const Way& way, double batch) {
  if (const double own = batch / way.replicas / way.accumulated; own < 1 || !is_whole(own))
    return concat("a batch of ", batch, " cannot be divided by ", way.replicas * way.accumulated,
        "; take a multiple of it");
  if (way.stages > 1 && !is_whole(batch / way.replicas / way.micro_batches))
    return concat("the ", batch / way.replicas, " samples of a replica cannot be divided into ",
        way.micro_batches, " micro-batches");
  return "";
}

std::string about_places(const Way& way, const Machine& machine) {
  if (way.places() > machine.all_places())
    return concat("needs ", way.places(), " places; there are ", machine.all_places());
  const bool within = way.replication == Replication::kThreads || way.stages > 1;
  const int together = way.replication == Replication::kThreads ? way.places() : way.stages;
  if (within && together > machine.places)
    return concat("needs ", together, " places in one node, which has ", machine.places);
  if (way.replicas % way.copies != 0)
    return concat(way.replicas, " places cannot share ", way.copies,
        " copies equally; take a divisor of them as --replicas");
  return "";
}

// What only some profiles tell: a place that was measured alone says nothing about its neighbours.
std::string about_profile(const Way& way, const ModelProfile& profile, const Machine& machine) {
  const bool has_neighbours = way.stages > 1 || ranks_of(way, machine).a_node > 1;
  if (has_neighbours && !profile.knows_within && machine.within.bytes_per_second == 0)
    return concat("the profile of ", profile.model,
        " says nothing about several places of a node; give their link, as --within 10GB,20us, or "
        "measure two places");
  const auto has_halves = [](const LayerCurves& layer) {
    return !layer.backward_input.is_free() || !layer.backward_weight.is_free();
  };
  if (way.schedule == ScheduleKind::kZeroBubble && std::ranges::none_of(profile.layers, has_halves))
    return concat("the profile of ", profile.model,
        " has no halves of backward, of which zero-bubble is made; take another schedule");
  const bool has_floats = profile.precision == "32" || profile.precision.ends_with("-mixed");
  if (way.sent_as != SentAs::kAsTheyAre && !has_floats)
    return concat("the gradients of ", profile.model, " are in ", printable(profile.precision),
        ", and what --comm-hook makes shorter is float32; leave it out");
  return "";
}

std::vector<int> doublings(int most) {
  std::vector<int> counts;
  for (int count = 2; count < most; count *= 2) counts.push_back(count);
  if (most > 1) counts.push_back(most);
  return counts;
}

bool wants(const WayChoice& choice, const Way& way) {
  const auto& kinds = choice.kinds;
  return kinds.empty() || std::ranges::find(kinds, kind_of(way)) != kinds.end();
}

std::vector<int> chunks_of(const WayChoice& choice, int stages) {
  if (!choice.micro_batches.empty()) return choice.micro_batches;
  std::vector<int> counts;
  for (int count = 2; count <= 4 * stages; count *= 2) counts.push_back(count);
  return counts;
}

void add_staged(const WayChoice& choice, int replicas, int stages, std::vector<Way>& ways) {
  Way way{.replicas = replicas, .stages = stages, .schedule = ScheduleKind::kSequential};
  if (wants(choice, way)) ways.push_back(way);
  for (const ScheduleKind schedule : choice.schedules) {
    way.schedule = schedule;
    for (const int count : chunks_of(choice, stages)) {
      way.micro_batches = count;
      if (wants(choice, way)) ways.push_back(way);
    }
  }
}

}  // namespace

int Way::scheduled_stages() const {
  return schedule == ScheduleKind::kInterleaved ? 2 * stages : stages;
}

std::string kind_of(const Way& way) {
  const std::string within = way.stages == 1 ? "" : is_pipeline(way) ? "pp" : "mp";
  if (way.replicas == 1) return within.empty() ? "serial" : within;
  if (way.replication == Replication::kShards) return "fsdp";
  const std::string across = way.replication == Replication::kThreads ? "dp" : "ddp";
  return within.empty() ? across : across + "+" + within;
}

std::string describe(const Way& way) {
  if (way.places() == 1) return "serial" + settings_text(way);
  const bool is_both = way.replicas > 1 && way.stages > 1;
  return concat(kind_of(way), is_both ? concat(" ", way.replicas) : "", " x ",
      way.stages > 1 ? way.stages : way.replicas, settings_text(way));
}

std::string why_not(
    const Way& way, const ModelProfile& profile, double batch, const Machine& machine) {
  if (std::string reason = about_places(way, machine); !reason.empty()) return reason;
  if (std::string reason = about_batch(way, batch); !reason.empty()) return reason;
  if (std::string reason = about_profile(way, profile, machine); !reason.empty()) return reason;
  if (static_cast<std::size_t>(way.scheduled_stages()) > profile.layers.size())
    return concat(profile.model, " has ", profile.layers.size(),
        profile.layers.size() == 1 ? " layer" : " layers", " and cannot be cut into ",
        way.scheduled_stages(), " stages");
  return "";
}

std::vector<Way> ways_on(const Machine& machine, const WayChoice& choice) {
  std::vector<Way> ways;
  if (const Way serial; wants(choice, serial)) ways.push_back(serial);
  for (const int replicas : doublings(machine.all_places())) {
    for (const Replication each :
        {Replication::kThreads, Replication::kProcesses, Replication::kShards}) {
      const Way way{.replicas = replicas, .replication = each};
      const bool fits = each != Replication::kThreads || replicas <= machine.places;
      if (fits && wants(choice, way)) ways.push_back(way);
    }
  }
  for (const int stages : doublings(machine.places)) {
    add_staged(choice, 1, stages, ways);
    for (const int replicas : doublings(machine.all_places() / stages)) {
      add_staged(choice, replicas, stages, ways);
    }
  }
  for (Way& way : ways) way = with_settings(way, choice.settings);
  return ways;
}

}  // namespace lockstep::plan
