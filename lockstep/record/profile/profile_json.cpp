#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{1} << 28;

Json lane_json(const LaneProfile& lane) {
  Json object = {{"thread", lane.thread}, {"main", lane.is_main}};
  for (const auto& phase : names_of(StepPhase{}))
    object[std::string(phase.name) + "_ms"] = lane.of(phase.value);
  return object;
}

LaneProfile read_lane(const JsonFields& fields) {
  LaneProfile lane{.thread = fields.text("thread"), .is_main = fields.flag("main")};
  for (const auto& phase : names_of(StepPhase{}))
    lane.of(phase.value) = fields.number((std::string(phase.name) + "_ms").c_str());
  return lane;
}

Json layer_json(const LayerProfile& layer) {
  return {{"name", layer.name}, {"forward_ms", layer.forward}, {"backward_ms", layer.backward},
      {"flops", layer.flops}};
}

LayerProfile read_layer(const JsonFields& fields) {
  return {.name = fields.text("name"),
      .forward = fields.number("forward_ms"),
      .backward = fields.number("backward_ms"),
      .flops = fields.number("flops")};
}

Json operator_json(const OperatorProfile& each) {
  return {{"name", each.name}, {"backward", each.is_backward}, {"calls", each.calls},
      {"ms", each.milliseconds}};
}

OperatorProfile read_operator(const JsonFields& fields) {
  return {.name = fields.text("name"),
      .is_backward = fields.flag("backward"),
      .calls = fields.number("calls"),
      .milliseconds = fields.number("ms")};
}

Json box_json(const TimelineSpan& box) {
  return {{"lane", box.lane}, {"phase", name_of(box.phase)}, {"name", box.name},
      {"begin_ms", box.begin}, {"end_ms", box.end}};
}

TimelineSpan read_box(const JsonFields& fields) {
  TimelineSpan box{.lane = static_cast<std::size_t>(fields.count("lane")),
      .name = fields.text("name"),
      .begin = fields.number("begin_ms"),
      .end = fields.number("end_ms")};
  const std::string phase = fields.text("phase");
  bool is_known = false;
  for (const auto& each : names_of(StepPhase{})) {
    if (each.name != phase) continue;
    box.phase = each.value;
    is_known = true;
  }
  if (!is_known) fields.refuse("phase", "be a phase of a step");
  return box;
}

Json chain_layer_json(const ChainLayer& layer) {
  return {{"name", layer.name}, {"forward_ms", layer.forward},
      {"backward_input_ms", layer.backward_input}, {"backward_weight_ms", layer.backward_weight},
      {"backward_ms", layer.backward}, {"activation_bytes", layer.activation_bytes},
      {"output_bytes", layer.output_bytes}, {"parameters", layer.parameters}};
}

std::vector<std::int64_t> read_bytes(const JsonFields& fields, const char* key) {
  constexpr double kMost = 1e15;  // which a double holds exactly
  std::vector<std::int64_t> bytes;
  for (const double number : fields.numbers(key)) {
    if (number < 0 || number > kMost || number != std::floor(number))
      fields.refuse(key, "be whole numbers from 0 to 1e15");
    bytes.push_back(static_cast<std::int64_t>(number));
  }
  return bytes;
}

ChainLayer read_chain_layer(const JsonFields& fields) {
  return {.name = fields.text("name"),
      .forward = fields.seconds("forward_ms"),
      .backward_input = fields.seconds("backward_input_ms"),
      .backward_weight = fields.seconds("backward_weight_ms"),
      .backward = fields.seconds("backward_ms"),
      .activation_bytes = fields.count("activation_bytes"),
      .output_bytes = fields.count("output_bytes"),
      .parameters = read_bytes(fields, "parameters")};
}

template <typename Item, typename Write>
Json list_of(const std::vector<Item>& items, const Write& write) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(write(item));
  return list;
}

template <typename Item, typename Read>
void read_list(std::vector<Item>& items, const std::vector<JsonFields>& list, const Read& read) {
  for (const JsonFields& fields : list) items.push_back(read(fields));
}

Json rank_json(const RankProfile& rank) {
  Json object = {{"rank", rank.rank}, {"steps", rank.steps}, {"step_ms", rank.step},
      {"lanes", list_of(rank.lanes, lane_json)}, {"layers", list_of(rank.layers, layer_json)},
      {"operators", list_of(rank.operators, operator_json)}, {"reduction_ms", rank.reduction},
      {"exposed_ms", rank.exposed}, {"flops", rank.flops},
      {"peak_flops_per_s", rank.peak ? Json(*rank.peak) : Json(nullptr)},
      {"timeline", list_of(rank.timeline, box_json)}};
  if (rank.unwaited_step) object["unwaited_step_ms"] = *rank.unwaited_step;
  if (rank.chain.empty()) return object;
  object["batch"] = rank.batch;
  object["chain"] = list_of(rank.chain, chain_layer_json);
  return object;
}

// Absent where no place has the whole model, and in files of versions that did not measure it.
void read_chain(RankProfile& rank, const JsonFields& fields) {
  if (!fields.has("chain")) {
    if (fields.has("batch")) fields.refuse("batch", "come with a chain");
    return;
  }
  rank.batch = fields.count("batch", 1);
  read_list(rank.chain, fields.objects("chain"), read_chain_layer);
  if (rank.chain.empty()) fields.refuse("chain", "have a layer");
}

// What tables and the picture of it rely on.
void check_rank(const RankProfile& rank, const JsonFields& fields) {
  if (rank.step <= 0) fields.refuse("step_ms", "be above 0");
  if (rank.unwaited_step && *rank.unwaited_step <= 0)
    fields.refuse("unwaited_step_ms", "be above 0");
  for (const TimelineSpan& box : rank.timeline)
    if (box.lane > rank.lanes.size() || box.begin < 0 || box.begin > box.end)
      fields.refuse("timeline", "have boxes within its lanes that end after they begin");
}

RankProfile read_rank(const JsonFields& fields) {
  RankProfile rank{.rank = fields.small_count("rank"),
      .steps = fields.count("steps", 1),
      .step = fields.seconds("step_ms"),
      .reduction = fields.seconds("reduction_ms"),
      .exposed = fields.seconds("exposed_ms"),
      .flops = fields.seconds("flops"),
      .peak = fields.number_if("peak_flops_per_s")};
  read_list(rank.lanes, fields.objects("lanes"), read_lane);
  read_list(rank.layers, fields.objects("layers"), read_layer);
  read_list(rank.operators, fields.objects("operators"), read_operator);
  read_list(rank.timeline, fields.objects("timeline"), read_box);
  if (fields.has("unwaited_step_ms")) rank.unwaited_step = fields.seconds("unwaited_step_ms");
  read_chain(rank, fields);
  check_rank(rank, fields);
  return rank;
}

}  // namespace

std::string profile_json(const RunProfile& profile) {
  const Json object = {
      {"v", 1}, {"precision", profile.precision}, {"ranks", list_of(profile.ranks, rank_json)}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunProfile read_profile(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_strict_json(text, file, {.bytes = kMostBytes});
  const JsonFields fields(object, file);
  fields.count("v", 1, 1);
  RunProfile profile{.precision = fields.text("precision")};
  read_list(profile.ranks, fields.objects("ranks"), read_rank);
  if (profile.ranks.empty()) fields.refuse("ranks", "have a rank");
  return profile;
}

}  // namespace lockstep
