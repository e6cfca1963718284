#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/formats/json_fields.h"
#include "lockstep/plan/profile/model_profile.h"

namespace lockstep::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{1} << 26;
constexpr int kVersion = 3;  // 1 had no overheads, 2 no cost of gradients or of sharing a core

Json curve_json(const CostCurve& curve) {
  Json points = Json::array();
  for (const auto& [batch, seconds] : curve.points()) {
    points.push_back({{"batch", batch}, {"seconds", seconds}});
  }
  return points;
}

CostCurve read_curve(const JsonFields& fields, const char* key) {
  std::vector<CostCurve::Point> points;
  for (const JsonFields& point : fields.objects(key)) {
    points.push_back({point.number("batch"), point.seconds("seconds")});
  }
  try {
    return CostCurve(std::move(points));
  } catch (const InvalidArgument& error) {
    fields.refuse(key, concat("be a cost (", error.what(), ")"));
  }
}

Json layer_json(const LayerCosts& layer) {
  return {{"name", layer.name}, {"forward", curve_json(layer.forward)},
      {"backward", curve_json(layer.backward)},
      {"backward_input", curve_json(layer.backward_input)},
      {"backward_weight", curve_json(layer.backward_weight)},
      {"activation_bytes", layer.activation_bytes}, {"output_bytes", layer.output_bytes},
      {"parameters", layer.parameters}};
}

LayerCosts read_layer(const JsonFields& fields) {
  return {.name = fields.text("name"),
      .forward = read_curve(fields, "forward"),
      .backward = read_curve(fields, "backward"),
      .backward_input = read_curve(fields, "backward_input"),
      .backward_weight = read_curve(fields, "backward_weight"),
      .activation_bytes = fields.seconds("activation_bytes"),
      .output_bytes = fields.seconds("output_bytes"),
      .parameters = fields.numbers("parameters")};
}

Json company_json(const Company& company) {
  return {{"compute", company.compute}, {"memory", company.memory}, {"cores", company.cores},
      {"crowded", company.crowded}};
}

Company read_company(const JsonFields& fields) {
  return {.compute = fields.numbers("compute"),
      .memory = fields.numbers("memory"),
      .cores = fields.small_count("cores"),
      .crowded = fields.number("crowded")};
}

Json link_json(const Link& link) {
  return {{"latency", link.latency}, {"bytes_per_second", link.bytes_per_second},
      {"core_share", link.core_share}};
}

Link read_link(const JsonFields& fields) {
  return {.latency = fields.seconds("latency"),
      .bytes_per_second = fields.seconds("bytes_per_second"),
      .core_share = fields.seconds("core_share")};
}

Json overheads_json(const Overheads& overheads) {
  return {{"hand_over", curve_json(overheads.hand_over)},
      {"threads", curve_json(overheads.threads)}, {"socket_core", overheads.socket_core},
      {"gradient_core", overheads.gradient_core}, {"replica_bytes", overheads.replica_bytes},
      {"socket_bytes", overheads.socket_bytes}};
}

Overheads read_overheads(const JsonFields& fields) {
  return {.hand_over = read_curve(fields, "hand_over"),
      .threads = read_curve(fields, "threads"),
      .socket_core = fields.seconds("socket_core"),
      .gradient_core = fields.seconds("gradient_core"),
      .replica_bytes = fields.seconds("replica_bytes"),
      .socket_bytes = fields.seconds("socket_bytes")};
}

}  // namespace

std::string profile_text(const ModelProfile& profile) {
  Json layers = Json::array();
  for (const LayerCosts& layer : profile.layers) layers.push_back(layer_json(layer));
  const Json object = {{"v", kVersion}, {"model", profile.model}, {"precision", profile.precision},
      {"device", profile.device}, {"source", profile.source}, {"measured", profile.is_measured},
      {"input", curve_json(profile.input)}, {"rest", curve_json(profile.rest)},
      {"optimizer", profile.optimizer}, {"state_copies", profile.state_copies},
      {"process_bytes", profile.process_bytes}, {"noise", profile.noise}, {"flops", profile.flops},
      {"company", company_json(profile.company)}, {"within", link_json(profile.within)},
      {"overheads", overheads_json(profile.overheads)}, {"layers", layers}};
  return object.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

ModelProfile parse_profile(const std::string& text, const std::string& file) {
  const nlohmann::json object = parse_strict_json(text, file, {.bytes = kMostBytes});
  const JsonFields fields(object, file);
  fields.count("v", kVersion, kVersion);
  ModelProfile profile{.model = fields.text("model"),
      .precision = fields.text("precision"),
      .device = fields.text("device"),
      .source = fields.text("source"),
      .is_measured = fields.flag("measured"),
      .layers = {},
      .input = read_curve(fields, "input"),
      .rest = read_curve(fields, "rest"),
      .optimizer = fields.seconds("optimizer"),
      .state_copies = fields.seconds("state_copies"),
      .process_bytes = fields.seconds("process_bytes"),
      .noise = fields.seconds("noise"),
      .flops = fields.seconds("flops"),
      .company = read_company(fields.object("company")),
      .within = read_link(fields.object("within")),
      .overheads = read_overheads(fields.object("overheads"))};
  for (const JsonFields& layer : fields.objects("layers"))
    profile.layers.push_back(read_layer(layer));
  try {
    check_profile(profile);
  } catch (const InvalidArgument& error) {
    throw DataError(concat(file, ": ", error.what()));
  }
  return profile;
}

}  // namespace lockstep::plan
