#include "lockstep/formats/export/exported_program.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/formats/export/argument.h"
#include "lockstep/formats/export/graph.h"
#include "lockstep/formats/export/parts.h"
#include "lockstep/formats/export/payload.h"
#include "lockstep/formats/export/signature.h"
#include "lockstep/formats/export/tree.h"

namespace lockstep {
namespace {

using exported::Memory;
using exported::Parts;
using exported::refuse;
using exported::shown;
using Json = nlohmann::json;

constexpr std::int64_t kSchema = 8;
// What copies of tensors may need beyond the size of the file.
constexpr std::uint64_t kMostMoreCopied = 64 << 20;

void check_schema(const JsonFields& fields, const std::string& where) {
  const std::int64_t major = fields.object("schema_version").count("major");
  if (major != kSchema) {
    refuse(where, "is of schema ", major, ", written by PyTorch ",
        shown(fields.text_if("torch_version").value_or("before 2.5")), "; only schema ", kSchema,
        " is read: export the model again with PyTorch 2.11 to 2.15");
  }
}

std::map<std::string, ExportedRange> read_ranges(const Json& ranges, const std::string& where) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  std::map<std::string, ExportedRange> result;
  for (const auto& [symbol, range] : ranges.items()) {
    const JsonFields fields(range, concat(where, ": range of ", shown(symbol)));
    result[symbol] = {fields.count_if("min_val", kLeast), fields.count_if("max_val", kLeast)};
  }
  return result;
}

// Of the leaves, which are of some of the specs, those that get a name.
template <typename Spec, typename IsLeaf, typename IsNamed>
std::vector<std::string> names_for(std::vector<std::string> leaves, const std::vector<Spec>& specs,
    const std::string& where, const IsLeaf& is_leaf, const IsNamed& is_named) {
  std::vector<std::string> names;
  std::size_t next = 0;
  for (const Spec& spec : specs) {
    if (!is_leaf(spec.kind)) continue;
    if (next < leaves.size() && is_named(spec.kind)) names.push_back(std::move(leaves[next]));
    ++next;
  }
  if (next != leaves.size()) {
    refuse(where, next, " in the signature, but ", leaves.size(), " in the nesting");
  }
  return names;
}

void name_values(exported::Names leaves, const std::string& where, ExportedProgram& program) {
  using Input = ExportedInputSpec::Kind;
  using Output = ExportedOutputSpec::Kind;
  program.input_names = names_for(
      std::move(leaves.inputs), program.inputs, concat(where, ": inputs of the user"),
      [](Input kind) { return kind == Input::kUser || kind == Input::kConstantValue; },
      [](Input kind) { return kind == Input::kUser; });
  program.output_names = names_for(
      std::move(leaves.outputs), program.outputs, concat(where, ": outputs of the user"),
      [](Output kind) { return kind == Output::kUser || kind == Output::kLoss; },
      [](Output) { return true; });
}

ExportedProgram read_program(
    const Parts& parts, const std::string& name, const std::shared_ptr<Memory>& memory) {
  const std::string where = concat(parts.file(), ": program ", shown(name));
  const Json json = parts.json(concat("models/", name, ".json"));
  const JsonFields fields(json, where);
  check_schema(fields, where);
  const JsonFields module = fields.object("graph_module");
  ExportedProgram program{.name = name};
  program.graph = exported::read_graph(module.object("graph").items(), where);
  program.tensors = exported::read_tensors(parts, name, memory);
  exported::read_signature(module.object("signature").items(), where, program);
  name_values(exported::read_names(module.items(), where), where, program);
  program.ranges = read_ranges(fields.object("range_constraints").items(), where);
  return program;
}

ExportedArchive parse_archive(std::span<const std::uint8_t> bytes, const std::string& name,
    const std::shared_ptr<Memory>& memory) {
  const Parts parts(bytes, name);
  memory->bytes_left = bytes.size() + kMostMoreCopied;
  ExportedArchive archive{.file = name, .memory = exported::memory_of(memory)};
  for (const std::string& program : parts.programs())
    archive.programs.push_back(read_program(parts, program, memory));
  return archive;
}

}  // namespace

ExportedArchive read_exported(const std::filesystem::path& path) {
  const auto memory = std::make_shared<Memory>();
  const MappedFile& file = memory->file.emplace(path);
  return file.checked([&] { return parse_archive(file.bytes(), file.name(), memory); });
}

ExportedArchive parse_exported(std::span<const std::uint8_t> bytes, const std::string& name) {
  return parse_archive(bytes, name, std::make_shared<Memory>());
}

}  // namespace lockstep
