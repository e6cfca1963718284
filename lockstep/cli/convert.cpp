#include <filesystem>
#include <iostream>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/cli/flags/flag_parser.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/formats/weights/weight_file.h"

namespace lockstep::cli {
namespace {

constexpr const char* kDescription = R"(Converts weights between safetensors and PyTorch's files.

What IN is, its content says; what OUT becomes, its extension: .safetensors, .pt, .pth or .bin.
Names, types and order stay. Nothing in a file is executed. What OUT cannot hold is refused: of
an OrderedDict only the versions of modules (_metadata) are left out, of safetensors' metadata
it is said what is.
)";

constexpr const char* kExamples = R"(Examples:
  lockstep convert resnet18.pth resnet18.safetensors
  lockstep convert checkpoint.pt weights.safetensors --only state_dict
  lockstep convert weights.safetensors weights.pt --force)";

struct Request {
  std::string input;
  std::string output;
  std::string only;
  bool force = false;
  bool json = false;
};

struct Summary {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> metadata_left_out;
};

/// Reads the command line; nothing if it asked for help, which is then printed.
std::optional<Request> request_of(const std::vector<std::string>& arguments) {
  Request request;
  CLI::App app;
  use_our_layout(app, "Usage: lockstep convert IN OUT [--only PREFIX] [--force] [--json]");
  app.description(kDescription);
  app.footer(kExamples);
  app.add_option("IN", request.input, "file to read")->required();
  app.add_option("OUT", request.output, "file to write")->required();
  app.add_option("--only", request.only, "take what lies below this name, such as state_dict");
  app.add_flag("--force", request.force, "write over OUT if it is there");
  app.add_flag("--json", request.json, "print one JSON object");
  app.set_help_flag("-h,--help", "print this");
  if (parse_flags(app, "convert", arguments)) return request;
  std::cout << app.help();
  return std::nullopt;
}

void check_output(const Request& request) {
  weight_format_of_extension(request.output);
  const bool is_there = std::filesystem::symlink_status(request.output).type() !=
                        std::filesystem::file_type::not_found;
  check(
      request.force || !is_there, "convert: ", request.output,
      " is there already; --force writes over it");
}

/// Reads the input; a complaint about its parts says which flag names one.
TensorFile read(const Request& request) {
  try {
    return read_weights(request.input, request.only);
  } catch (const DataError& error) {
    const std::string text = error.what();
    if (text.find("are no tensors") == std::string::npos) throw;
    throw DataError(text + "; --only PREFIX takes a part");
  }
}

Summary convert(const Request& request) {
  check_output(request);
  const TensorFile weights = read(request);
  Summary summary;
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
  write_weights(request.output, weights.entries(), metadata);
  return summary;
}

void print(const Request& request, const Summary& summary) {
  std::cout << request.output << ": " << summary.tensors << " tensors, " << summary.bytes
            << " bytes\n";
  if (summary.metadata_left_out.empty()) return;
  std::cout << "left out, as a file of PyTorch has no place for metadata:";
  for (const std::string& key : summary.metadata_left_out) std::cout << ' ' << key;
  std::cout << '\n';
}

void print_json(const Request& request, const Summary& summary) {
  const nlohmann::ordered_json object{
      {"v", 1},
      {"input", request.input},
      {"output", request.output},
      {"tensors", summary.tensors},
      {"bytes", summary.bytes},
      {"metadata_left_out", summary.metadata_left_out}};
  std::cout << object.dump() << '\n';
}

}  // namespace

int convert(const std::vector<std::string>& arguments) {
  const auto request = request_of(arguments);
  if (!request) return 0;
  const Summary summary = convert(*request);
  (request->json ? print_json : print)(*request, summary);
  return 0;
}

}  // namespace lockstep::cli
