#include "lockstep/record/profile/trace.h"

#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

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
