// The memory that ranks need to make a model which they divide: their parts, and a unit.

#include <cstdint>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <malloc.h>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/formats/export/small_archive.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/train/strategy/replica.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using testing::size_of;

constexpr std::int64_t kLayers = 16, kWidth = 1024;
constexpr std::int64_t kUnit = kWidth * kWidth * 4, kModel = kLayers * kUnit;  // bytes

Json named(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }

Json input(const char* name, const std::string& value) {
  return {{"name", name}, {"arg", named(value)}, {"kind", 1}};
}

Json with_sizes(Json tensor, const Json& rows) {
  tensor["sizes"] = Json::array({rows, size_of(kWidth)});
  tensor["strides"] = Json::array({size_of(kWidth), size_of(1)});
  return tensor;
}

/// Writes a program of linear layers without bias, one behind the other.
std::string write_chain(const testing::TemporaryFolder& folder) {
  testing::SmallArchive archive;
  Json& module = archive.program["graph_module"];
  Json& graph = module["graph"];
  const Json given = with_sizes(graph["tensor_values"]["x"], {{"as_expr", {{"expr_str", "s0"}}}});
  const Json weight = with_sizes(archive.weight()["tensor_meta"], size_of(kWidth));
  const Json of_user = module["signature"]["input_specs"][1], node = graph["nodes"][0];
  graph["tensor_values"] = {{"x", given}};
  graph["nodes"] = graph["inputs"] = module["signature"]["input_specs"] = Json::array();
  const Json payload = archive.weight();
  archive.weights["config"] = Json::object();
  archive.parts = {{"archive_format", "pt2"}, {"archive_version", "0"}, {"byteorder", "little"}};
  std::string before = "x";
  for (std::int64_t i = 0; i < kLayers; ++i) {
    const std::string name = concat("layer", i), parameter = "p_" + name, part = "weight_" + name;
    archive.parts["data/weights/" + part] = std::string(kUnit, '\0');
    Json& stored = archive.weights["config"][name + ".weight"] = payload;
    stored["path_name"] = part;
    stored["tensor_meta"] = weight;
    graph["inputs"].push_back(named(parameter));
    graph["tensor_values"][parameter] = weight;
    graph["tensor_values"][name] = given;
    module["signature"]["input_specs"].push_back(
        {{"parameter", {{"arg", {{"name", parameter}}}, {"parameter_name", name + ".weight"}}}});
    Json call = node;
    call["target"] = "torch.ops.aten.linear.default";
    call["name"] = name;
    call["inputs"] = Json::array({input("input", before), input("weight", parameter)});
    call["outputs"] = Json::array({named(name)});
    call["metadata"]["nn_module_stack"] = concat("a,,net.Net;b,", name, ",torch.nn.Linear");
    graph["nodes"].push_back(call);
    before = name;
  }
  graph["inputs"].push_back(named("x"));
  module["signature"]["input_specs"].push_back(of_user);
  graph["outputs"] = Json::array({named(before)});
  module["signature"]["output_specs"][0]["user_output"]["arg"] = named(before);
  return folder.write("chain.pt2", archive.bytes());
}

/// Returns by how many bytes the memory of this process grows at most while the body runs.
std::int64_t growth(const std::function<void()>& body) {
  ::malloc_trim(0);
  std::ofstream file("/proc/self/clear_refs");
  EXPECT_TRUE(file << "5" << std::flush) << "the peak cannot be set back";
  const std::int64_t before = peak_memory_bytes().value();
  body();
  return peak_memory_bytes().value() - before;
}

TEST(ShardedMemory, OfAnExportedModelIsThePartsAndAFewUnits) {
  const testing::TemporaryFolder folder;
  TrainOptions options;
  options.model = write_chain(folder);
  options.parallel = Parallel::kFsdp;
  const SampleForm form{.image = {},
      .outputs = kWidth,
      .inputs = {{"x", {kWidth}, torch::kFloat}},
      .targets = {{"y", {kWidth}, torch::kFloat}}};
  EXPECT_GE(growth([&] { nn::make_model(options.model, kWidth); }), kModel);
  // Ranks are threads of this process: their parts make one model.
  constexpr int kRanks = 2;
  const std::int64_t grown = growth([&] {
    run_ranks(kRanks, [&](const ProcessGroup& world) {
      const Layout layout = plan_layout_in(options, kRanks, /*of_threads=*/true);
      make_replica(options, layout, form, make_rank_groups(world, layout), {});
    });
  });
  EXPECT_GE(grown, kModel);
  EXPECT_LT(grown, kModel + 6 * kUnit);
}

}  // namespace
}  // namespace lockstep
