#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/zip_mutation.h"

#include "lockstep/formats/export/exported_program.h"

namespace {

using lockstep::ExportedInputSpec;
using lockstep::ExportedProgram;
using lockstep::testing::require;
using lockstep::testing::ZipPart;

/// What the header promises to those who run the program.
void check_program(const ExportedProgram& program) {
  require(program.inputs.size() == program.graph.inputs.size());
  require(program.outputs.size() == program.graph.outputs.size());
  const auto users = std::count_if(program.inputs.begin(), program.inputs.end(),
      [](const ExportedInputSpec& spec) { return spec.kind == ExportedInputSpec::Kind::kUser; });
  require(program.input_names.size() == static_cast<std::size_t>(users));
  for (const ExportedInputSpec& spec : program.inputs)
    require(spec.target.empty() || program.tensors.find(spec.target) != nullptr);
  for (const lockstep::TensorEntry& entry : program.tensors.entries())
    require(entry.bytes.size() == lockstep::tensor_bytes(entry.type, entry.shape));
}

}  // namespace

// Mostly JSON.
extern "C" std::size_t LLVMFuzzerCustomMutator(
    std::uint8_t* data, std::size_t size, std::size_t most, unsigned int seed) {
  return lockstep::testing::mutate_archive(
      data, size, most, seed, [seed](std::vector<ZipPart>& parts) -> ZipPart& {
        std::vector<ZipPart*> json;
        for (ZipPart& part : parts)
          if (part.name.ends_with(".json")) json.push_back(&part);
        if (json.empty() || seed % 4 == 0) return parts[seed / 8 % parts.size()];
        return *json[seed / 8 % json.size()];
      });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::testing::is_taken([&] {
    const auto archive = lockstep::parse_exported({data, size}, "fuzz");
    require(!archive.programs.empty());
    for (const ExportedProgram& program : archive.programs) check_program(program);
  });
  return 0;
}
