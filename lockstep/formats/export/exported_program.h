#pragma once

#include <complex>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

struct ExportedGraph;
struct ExportedArgument;

/// A size: a number, or for a dimension that may vary an expression as PyTorch prints it, such as
/// `s23` or `2*s23`.
struct ExportedSize {
  std::optional<std::int64_t> number;
  std::string expression;  ///< empty for a number
};

/// The type and shape of a tensor, which are known before the program runs.
struct ExportedTensor {
  ElementType type = ElementType::kFloat32;
  std::vector<ExportedSize> shape;
  bool requires_grad = false;
};

/// The name of a value that an input of the graph or a node has made: a tensor, or a number such as
/// a size.
struct ExportedName {
  std::string name;
};

enum class ExportedMemoryFormat : std::uint8_t {
  kContiguous,
  kChannelsLast,
  kChannelsLast3d,
  kPreserve
};

/// A device as PyTorch names it: `cpu`, `cuda:0`.
struct ExportedDevice {
  std::string name;
};

/// PyTorch's name of how a tensor lies in memory: `strided`.
struct ExportedLayout {
  std::string name;
};

/// A graph that a higher-order operator is given.
struct ExportedSubgraph {
  std::string name;
  std::shared_ptr<const ExportedGraph> graph;
};

using ExportedList = std::vector<ExportedArgument>;

/// An argument of a node, or what it returns; monostate is Python's None. A list may mix numbers,
/// names and None.
struct ExportedArgument {
  std::variant<std::monostate, ExportedName, bool, std::int64_t, double, std::complex<double>,
      std::string, ElementType, ExportedMemoryFormat, ExportedLayout, ExportedDevice,
      ExportedSubgraph, ExportedList>
      content;
};

/// An argument under its name in the operator's schema; higher-order operators have no names.
struct ExportedInput {
  std::string name;
  ExportedArgument argument;
};

/// A module of Python that a node was called in.
struct ExportedModule {
  std::string path;  ///< `layers.0.attention`; empty for the model itself
  std::string type;  ///< `torch.nn.modules.linear.Linear`
};

/// A call of an operator.
struct ExportedNode {
  std::string name;    ///< unique in its graph; in files before 2.8 the first output's
  std::string target;  ///< `torch.ops.aten.conv2d.default`, `_operator.mul`
  std::vector<ExportedInput> inputs;
  std::vector<ExportedArgument> outputs;  ///< names, lists of names, None
  std::vector<ExportedModule> modules;    ///< from the model down to the innermost
  std::string source;  ///< the line of the user's Python: `net.py:7, in forward: h = self.c(x)`
};

/// Operators in the order in which they are called.
struct ExportedGraph {
  std::vector<ExportedArgument> inputs;
  std::vector<ExportedArgument> outputs;
  std::vector<ExportedNode> nodes;
  std::map<std::string, ExportedTensor> tensors;  ///< by the names of values
  std::map<std::string, ExportedSize> sizes;      ///< likewise
};

/// The meaning of an input of a program's graph.
struct ExportedInputSpec {
  enum class Kind : std::uint8_t { kUser, kParameter, kBuffer, kConstant, kConstantValue };
  Kind kind = Kind::kUser;
  ExportedArgument value;  ///< as in the graph's inputs; of a constant value, that value
  std::string target;      ///< Python's name of the parameter, buffer or constant
  bool persistent = true;  ///< of a buffer: whether it belongs to the state_dict
};

/// The meaning of an output of a program's graph.
struct ExportedOutputSpec {
  enum class Kind : std::uint8_t {
    kUser,
    kLoss,
    kBufferMutation,
    kParameterMutation,
    kInputMutation
  };
  Kind kind = Kind::kUser;
  ExportedArgument value;
  std::string target;  ///< of a mutation: the name of what takes this value
};

/// The range of a symbol of sizes; nothing where there is no limit.
struct ExportedRange {
  std::optional<std::int64_t> least, most;
};

/// One program of an archive.
struct ExportedProgram {
  std::string name;  ///< within the archive: `model`, `train`
  ExportedGraph graph;
  std::vector<ExportedInputSpec> inputs;        ///< as many as graph.inputs
  std::vector<ExportedOutputSpec> outputs;      ///< as many as graph.outputs
  std::map<std::string, ExportedRange> ranges;  ///< by symbol
  /// Names of the user's inputs and outputs, one for each tensor in its nesting: `ids`,
  /// `batch.mask`; `logits`, `hidden.0`. An output of a model that returns one tensor is `output`.
  /// They belong to the inputs of kind kUser, and to the outputs of kinds kUser and kLoss, also to
  /// one that is None.
  std::vector<std::string> input_names, output_names;
  /// Parameters, buffers and constants by Python's names, laid out row-major. Names that share a
  /// weight have entries of the same bytes.
  TensorFile tensors{{}, {}, nullptr};
};

/// A file of `torch.export.save` or of `package_pt2`, which may have several programs of one model,
/// such as one for training and one for evaluation.
struct ExportedArchive {
  std::string file;
  std::vector<ExportedProgram> programs;  ///< at least one
  FileMemory memory;                      ///< in which the tensors' bytes lie
};

/// Reads an archive of PyTorch 2.11 to 2.15 (schema 8). Nothing in it is executed.
///
/// What is not understood is a DataError that names the file, the node and its argument, and the
/// line of Python that made it: other schemas, custom objects, sparse tensors, unknown kinds of
/// arguments, names that nothing has made, tensors that do not fit their bytes.
ExportedArchive read_exported(const std::filesystem::path& path);

/// Does the same with bytes in memory, which must outlive the result; `name` stands in messages.
ExportedArchive parse_exported(std::span<const std::uint8_t> bytes, const std::string& name);

}  // namespace lockstep
