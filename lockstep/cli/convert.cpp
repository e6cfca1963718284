#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep::cli {
namespace {

constexpr const char* kConvertDescription =
    R"(Converts weights between safetensors and PyTorch's files.

The format of IN is found by its content, that of OUT by its extension: .safetensors, .pt, .pth or
.bin. Names, types and order are kept. Nothing in a file is executed; objects of Python beside the
weights, as in the checkpoints of timm, do not hinder --only. What OUT cannot hold is refused,
except for the versions of modules (_metadata) of an OrderedDict and the metadata of safetensors:
they are left out, the latter with a message.
)";

constexpr const char* kConvertExamples = R"(Examples:
  lockstep convert resnet18.pth resnet18.safetensors
  lockstep convert checkpoint.pt weights.safetensors --only state_dict
  lockstep convert weights.safetensors weights.pt --force)";

struct ConvertRequest {
  std::string input;
  std::string output;
  std::string only;
  bool force = false;
  bool json = false;
};

struct ConvertSummary {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> metadata_left_out;
};

void check_output(const ConvertRequest& request) {
  weight_format_of_extension(request.output);
  const bool is_there = std::filesystem::symlink_status(request.output).type() !=
                        std::filesystem::file_type::not_found;
  check(request.force || !is_there, "convert: ", request.output,
      " already exists; --force overwrites it");
}

/// Reads the input; of a checkpoint it says by which flag the weights are taken.
TensorFile read(const ConvertRequest& request) {
  try {
    return read_weights(request.input, request.only);
  } catch (const MixedContent& error) {
    throw DataError(concat("convert: ", request.input, ": ", error.advice("--only")));
  }
}

ConvertSummary convert(const ConvertRequest& request) {
  check_output(request);
  const TensorFile weights = read(request);
  ConvertSummary summary;
  summary.tensors = weights.entries().size();
  for (const TensorEntry& entry : weights.entries()) summary.bytes += entry.bytes.size();
  auto metadata = weights.metadata();
  if (weight_format_of_extension(request.output) == WeightFormat::kTorch) {
    for (const auto& item : metadata) summary.metadata_left_out.push_back(item.first);
    metadata.clear();
  } else if (weight_format_of_content(request.input) == WeightFormat::kTorch) {
    // Programs of Python look there for the library whose tensors these are.
    metadata["format"] = "pt";
  }
  write_weights(request.output, weights, metadata);
  return summary;
}

void print_summary(const ConvertRequest& request, const ConvertSummary& summary) {
  std::cout << request.output << ": " << summary.tensors << " tensors, " << summary.bytes
            << " bytes\n";
  if (summary.metadata_left_out.empty()) return;
  std::cout << "left out, since PyTorch files cannot hold metadata:";
  for (const std::string& key : summary.metadata_left_out) std::cout << ' ' << key;
  std::cout << '\n';
}

void print_summary_json(const ConvertRequest& request, const ConvertSummary& summary) {
  const nlohmann::ordered_json object{{"v", 1}, {"input", request.input},
      {"output", request.output}, {"tensors", summary.tensors}, {"bytes", summary.bytes},
      {"metadata_left_out", summary.metadata_left_out}};
  std::cout << object.dump() << '\n';
}

}  // namespace

int convert(const std::vector<std::string>& arguments) {
  using R = ConvertRequest;
  const FlagTable<R> table(
      {.verb = "convert",
          .usage = "lockstep convert IN OUT [--only PREFIX] [--force] [--json]",
          .description = kConvertDescription,
          .footer = kConvertExamples},
      {{"Arguments", {flag("IN", "", "file to read", &R::input).required(),
                         flag("OUT", "", "file to write", &R::output).required()}},
          {"Options", {flag("--only", "PREFIX",
                           "take only the entries below this name, such as state_dict", &R::only),
                          flag_on("--force", "overwrite OUT if it exists", &R::force),
                          flag_on("--json", "print one JSON object", &R::json)}}});
  const auto request = table.request(arguments, std::cout);
  if (!request) return 0;
  const ConvertSummary summary = convert(*request);
  (request->json ? print_summary_json : print_summary)(*request, summary);
  return 0;
}

}  // namespace lockstep::cli
