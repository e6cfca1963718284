#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/cli/verbs.h"
#include "lockstep/core/error.h"
#include "lockstep/flags/flag_table.h"
#include "lockstep/formats/export/exported_writer.h"
#include "lockstep/formats/weights/torch_file.h"
#include "lockstep/formats/weights/weight_file.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/tensor_group.h"
#include "lockstep/train/record/run_directory.h"

namespace lockstep::cli {
namespace {

constexpr const char* kConvertDescription =
    R"(Converts weights between safetensors and PyTorch's files, and puts them into programs of Python's
torch.export.

The format of IN is found by its content, that of OUT by its extension: .safetensors, .pt, .pth or
.bin. Names, types and order are kept. Nothing in a file is executed; objects of Python beside the
weights, as in the checkpoints of timm, do not hinder --only. What OUT cannot hold is refused,
except for the versions of modules (_metadata) of an OrderedDict and the metadata of safetensors:
they are left out, the latter with a message. If IN is the folder of a run, its best weights are
taken, or its last where no epoch was compared. If IN is the folder of a snapshot, OUT is one
.safetensors of its whole weights, whatever the number of ranks that wrote it; that takes little
memory.

If OUT is a program, .pt2, it is only read: --output gets a copy of it with the weights of IN in all
its programs. Names, shapes and types must be those of the program.
)";

constexpr const char* kConvertExamples = R"(Examples:
  lockstep convert resnet18.pth resnet18.safetensors
  lockstep convert checkpoint.pt weights.safetensors --only state_dict
  lockstep convert weights.safetensors weights.pt --force
  lockstep convert runs/night net.pt2 -o trained.pt2
  lockstep convert runs/night/snapshots/step-00001200 weights.safetensors)";

constexpr std::string_view kProgram = ".pt2";

struct ConvertRequest {
  std::string input;
  std::string target;  ///< the file to write, or a program to put the weights into
  std::string output;  ///< with a program the file to write
  std::string only;
  bool force = false;
  bool json = false;

  bool has_program() const { return target.ends_with(kProgram); }
  const std::string& written() const { return has_program() ? output : target; }
};

struct ConvertSummary {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> metadata_left_out;
};

void check_output(const ConvertRequest& request) {
  check(!request.input.ends_with(kProgram), "convert: ", request.input,
      " is a program, which weights are put into; in Python, torch.export.load(FILE).state_dict "
      "has "
      "its own");
  if (request.has_program()) {
    check(request.output.ends_with(kProgram), "convert: ", request.target,
        " is a program to put the weights into; name the file with both, such as -o trained.pt2");
  } else {
    check(request.output.empty(), "convert: --output is for weights in a program, and ",
        request.target, " is no .pt2");
    weight_format_of_extension(request.target);
  }
  const bool is_there = std::filesystem::symlink_status(request.written()).type() !=
                        std::filesystem::file_type::not_found;
  check(request.force || !is_there, "convert: ", request.written(),
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

/// Returns the metadata that the output gets; what it cannot hold goes into the summary.
std::map<std::string, std::string> metadata_for(
    const ConvertRequest& request, const TensorFile& weights, ConvertSummary& summary) {
  auto metadata = weights.metadata();
  if (weight_format_of_extension(request.target) == WeightFormat::kTorch) {
    for (const auto& item : metadata) summary.metadata_left_out.push_back(item.first);
    metadata.clear();
  } else if (weight_format_of_content(request.input) == WeightFormat::kTorch) {
    // Programs of Python look there for the library whose tensors these are.
    metadata["format"] = "pt";
  }
  return metadata;
}

ConvertSummary convert(const ConvertRequest& request) {
  const TensorFile weights = read(request);
  ConvertSummary summary;
  summary.tensors = weights.entries().size();
  for (const TensorEntry& entry : weights.entries()) summary.bytes += entry.bytes.size();
  if (request.has_program()) {
    write_exported(request.output, request.target, weights, concat("convert: ", request.input));
  } else {
    write_weights(request.target, weights, metadata_for(request, weights, summary));
  }
  return summary;
}

/// Returns the folder of a snapshot, without a slash at its end; nothing for another input.
std::optional<std::filesystem::path> snapshot_of(const std::string& input) {
  std::filesystem::path path = std::filesystem::path(input).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const bool is_one =
      step_of(path.filename().string()).has_value() && std::filesystem::is_directory(path);
  return is_one ? std::optional(path) : std::nullopt;
}

ConvertSummary convert_snapshot(
    const ConvertRequest& request, const std::filesystem::path& snapshot) {
  check(!request.has_program() && request.only.empty() &&
            weight_format_of_extension(request.target) == WeightFormat::kSafetensors,
      "convert: ", request.input,
      " is a snapshot, whose weights become a .safetensors; convert that further");
  const SnapshotGroups groups = groups_of(verify_snapshot(snapshot), snapshot);
  const auto model = groups.find("model");
  if (model == groups.end())
    throw DataError(concat("convert: ", snapshot.string(), " has no weights of a model"));
  const TensorGroup group = open_group(snapshot, model->second);
  write_whole(group, request.target, {{"format", "pt"}});
  ConvertSummary summary{.tensors = group.tensors.size(), .metadata_left_out = {}};
  for (const JoinedTensor& tensor : group.tensors)
    summary.bytes += *tensor_bytes(tensor.type, tensor.shape);
  return summary;
}

void print_summary(const ConvertRequest& request, const ConvertSummary& summary) {
  std::cout << request.written() << ": " << summary.tensors << " tensors, " << summary.bytes
            << " bytes\n";
  if (summary.metadata_left_out.empty()) return;
  std::cout << "left out, since PyTorch files cannot hold metadata:";
  for (const std::string& key : summary.metadata_left_out) std::cout << ' ' << key;
  std::cout << '\n';
}

void print_summary_json(const ConvertRequest& request, const ConvertSummary& summary) {
  const nlohmann::ordered_json object{{"v", 1}, {"input", request.input},
      {"output", request.written()}, {"tensors", summary.tensors}, {"bytes", summary.bytes},
      {"metadata_left_out", summary.metadata_left_out}};
  std::cout << object.dump() << '\n';
}

}  // namespace

int convert(const std::vector<std::string>& arguments) {
  using R = ConvertRequest;
  const FlagTable<R> table(
      {.verb = "convert",
          .usage = "lockstep convert IN OUT [--output FILE] [--only PREFIX] [--force] [--json]",
          .description = kConvertDescription,
          .footer = kConvertExamples},
      {{"Arguments",
           {flag("IN", "", "file to read, or the folder of a run or snapshot", &R::input)
                   .required(),
               flag("OUT", "", "file to write, or a program to put the weights into", &R::target)
                   .required()}},
          {"Options",
              {flag("--output", "FILE", "with a program: write it here with the weights, .pt2",
                   &R::output)
                      .letter("-o"),
                  flag("--only", "PREFIX",
                      "take only the entries below this name, such as state_dict", &R::only),
                  flag_on("--force", "overwrite a file that exists", &R::force),
                  flag_on("--json", "print one JSON object", &R::json)}}});
  auto request = table.request(arguments, std::cout);
  if (!request) return 0;
  check_output(*request);
  const auto snapshot = snapshot_of(request->input);
  if (!snapshot && std::filesystem::is_directory(request->input))
    request->input = weights_of_run(request->input).file;
  const ConvertSummary summary =
      snapshot ? convert_snapshot(*request, *snapshot) : convert(*request);
  (request->json ? print_summary_json : print_summary)(*request, summary);
  return 0;
}

}  // namespace lockstep::cli
