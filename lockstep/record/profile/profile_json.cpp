#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {
namespace {

using Json = JsonWriter::Json;

constexpr std::size_t kMostBytes = std::size_t{1} << 28;

// Absent where no place has the whole model.
void read_chain(RankProfile& rank, JsonReader& object) {
  const JsonFields& fields = object.fields();
  if (!fields.has("chain")) {
    if (fields.has("batch")) fields.refuse("batch", "come with a chain");
    return;
  }
  rank.batch = fields.count("batch", 1);
  object("chain", rank.chain);
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

void list_more(JsonWriter& object, const RankProfile& rank) {
  object("product_flops", rank.product_flops);
  if (rank.unwaited_step) object("unwaited_step_ms", *rank.unwaited_step);
  if (rank.chain.empty()) return;
  object("batch", rank.batch);
  object("chain", rank.chain);
}

void list_more(JsonReader& object, RankProfile& rank) {
  if (object.fields().has("unwaited_step_ms"))
    rank.unwaited_step = object.fields().seconds("unwaited_step_ms");
  rank.product_flops = object.fields().number_if("product_flops").value_or(0);  // older files
  read_chain(rank, object);
  check_rank(rank, object.fields());
}

const char* category_of(Activity activity) {
  switch (activity) {
    case Activity::kLayer:
      return "layer";
    case Activity::kOperator:
      return "operator";
    case Activity::kGradientNode:
      return "gradient";
    case Activity::kCommunication:
    case Activity::kReduction:
      return "communication";
    case Activity::kIdle:
      return "idle";
    default:
      return "phase";
  }
}

double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

void add(std::string& text, const Json& event) {
  text += (text.empty() ? "" : ",\n") + event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void add_name(
    std::string& text, const char* what, int rank, std::size_t lane, const std::string& name) {
  add(text,
      {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}});
}

Json complete(const Span& span, int rank, std::size_t lane, std::int64_t start) {
  Json event = {{"ph", "X"}, {"name", span.name}, {"cat", category_of(span.activity)},
      {"pid", rank}, {"tid", lane}, {"ts", microseconds(span.begin - start)},
      {"dur", microseconds(span.end - span.begin)}};
  if (!span.layer.empty()) event["args"]["layer"] = span.layer;
  if (span.flops > 0) event["args"]["flops"] = span.flops;
  return event;
}

}  // namespace

template <typename Object>
void list_fields(Object& object, LaneProfile& lane) {
  object("thread", lane.thread);
  object("main", lane.is_main);
  for (const auto& phase : names_of(StepPhase{}))
    object.number((std::string(phase.name) + "_ms").c_str(), lane.of(phase.value));
}

template <typename Object>
void list_fields(Object& object, LayerProfile& layer) {
  object("name", layer.name);
  object.number("forward_ms", layer.forward);
  object.number("backward_ms", layer.backward);
  object.number("flops", layer.flops);
}

template <typename Object>
void list_fields(Object& object, OperatorProfile& each) {
  object("name", each.name);
  object("backward", each.is_backward);
  object.number("calls", each.calls);
  object.number("ms", each.milliseconds);
}

template <typename Object>
void list_fields(Object& object, TimelineSpan& box) {
  object("lane", box.lane);
  object.choice("phase", box.phase, "be a phase of a step");
  object("name", box.name);
  object.number("begin_ms", box.begin);
  object.number("end_ms", box.end);
}

template <typename Object>
void list_fields(Object& object, LayerCosts& layer) {
  object("name", layer.name);
  object.milliseconds("forward_ms", layer.forward);
  object.milliseconds("backward_input_ms", layer.backward_input);
  object.milliseconds("backward_weight_ms", layer.backward_weight);
  object.milliseconds("backward_ms", layer.backward);
  object("activation_bytes", layer.activation_bytes);
  object("output_bytes", layer.output_bytes);
  object("parameters", layer.parameter_bytes);
}

template <typename Object>
void list_fields(Object& object, RankProfile& rank) {
  object("rank", rank.rank);
  object("steps", rank.steps, 1);
  object("step_ms", rank.step);
  object("lanes", rank.lanes);
  object("layers", rank.layers);
  object("operators", rank.operators);
  object("reduction_ms", rank.reduction);
  object("exposed_ms", rank.exposed);
  object("flops", rank.flops);
  object("peak_flops_per_s", rank.peak);
  object("timeline", rank.timeline);
  list_more(object, rank);
}

template <typename Object>
void list_fields(Object& object, RunProfile& profile) {
  object("precision", profile.precision);
  object("ranks", profile.ranks);
}

std::string profile_json(const RunProfile& profile) {
  Json object = {{"v", 1}};
  object.update(JsonWriter::json_of(profile));
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunProfile read_profile(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_strict_json(text, file, {.bytes = kMostBytes});
  const JsonFields fields(object, file);
  fields.count("v", 1, 1);
  auto profile = JsonReader::read<RunProfile>(fields);
  if (profile.ranks.empty()) fields.refuse("ranks", "have a rank");
  return profile;
}

// Reductions overlap with what their thread does, so they have a row of their own.
std::string trace_events(int rank, const std::vector<SpanLane>& lanes, std::int64_t start) {
  std::string text;
  add_name(text, "process_name", rank, 0, concat("rank ", rank));
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::size_t reductions = lanes.size() + lane;
    bool has_reductions = false;
    add_name(text, "thread_name", rank, lane, lanes[lane].is_main ? "main" : lanes[lane].thread);
    for (const Span& span : lanes[lane].spans) {
      const bool is_reduction = span.activity == Activity::kReduction;
      has_reductions = has_reductions || is_reduction;
      add(text, complete(span, rank, is_reduction ? reductions : lane, start));
    }
    if (has_reductions) add_name(text, "thread_name", rank, reductions, "gradients on their way");
  }
  return text;
}

std::string trace_file(const std::vector<std::string>& events) {
  std::string text;
  for (const std::string& of_rank : events)
    if (!of_rank.empty()) text += (text.empty() ? "" : ",\n") + of_rank;
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + text + "\n]}\n";
}

}  // namespace lockstep
