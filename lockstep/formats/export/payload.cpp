#include "lockstep/formats/export/payload.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/export/argument.h"
#include "lockstep/formats/weights/torch_file.h"

namespace lockstep::exported {
namespace {

using Json = nlohmann::json;
using Sizes = std::vector<std::int64_t>;

/// The folders of PyTorch's archive, and what their lists of tensors are called.
struct Folder {
  const char* path;
  const char* list;
};
constexpr Folder kWeights{"data/weights/", "_weights_config.json"};
constexpr Folder kConstants{"data/constants/", "_constants_config.json"};

std::int64_t number_of(const ExportedSize& size, const std::string& where) {
  if (!size.number || *size.number < 0) refuse(where, "a size, stride or offset is no number");
  return *size.number;
}

Sizes numbers_of(const std::vector<ExportedSize>& sizes, const std::string& where) {
  Sizes numbers;
  for (const ExportedSize& size : sizes) numbers.push_back(number_of(size, where));
  return numbers;
}

View read_view(const std::string& part, const Json& meta, const std::string& where) {
  const ExportedTensor tensor = read_tensor(meta, where);
  const JsonFields fields(meta, where);
  View view{.part = part, .type = tensor.type, .shape = numbers_of(tensor.shape, where)};
  for (const Json& stride : list_at(fields, "strides"))
    view.strides.push_back(number_of(read_size(stride, where), where));
  const Json& offset = fields.object("storage_offset").items();
  view.offset = static_cast<std::uint64_t>(number_of(read_size(offset, where), where));
  if (view.strides.size() != view.shape.size()) {
    refuse(where, view.shape.size(), " sizes, but ", view.strides.size(), " strides");
  }
  return view;
}

// Calls `visit` with name and fields of each tensor that a list has, and with what begins messages.
template <typename Visit>
void for_each_payload(
    const Parts& parts, const Folder& folder, const std::string& program, const Visit& visit) {
  const std::string name = concat(folder.path, program, folder.list);
  const Json list = parts.json(name);
  const std::string file = concat(parts.file(), ": ", printable_path(name));
  for (const auto& [tensor, payload] : JsonFields(list, file).object("config").items().items())
    visit(tensor, JsonFields(payload, concat(file, ": ", shown(tensor))),
        concat(parts.file(), ": tensor ", shown(tensor), " of program ", shown(program)));
}

class TensorReader {
 public:
  TensorReader(const Parts& parts, Memory& memory) : parts_(parts), memory_(memory) {}

  void read(const Folder& folder, const std::string& program) {
    for_each_payload(parts_, folder, program,
        [&](const std::string& name, const JsonFields& fields, const std::string& where) {
          read_payload(folder, name, fields, where);
        });
  }

  std::vector<TensorEntry> take_entries() {
    check_overlaps();
    return std::move(entries_);
  }

 private:
  /// The bytes in a part that a tensor reaches over.
  struct Extent {
    View view;
    std::uint64_t begin = 0, end = 0;
    std::string name, where;
  };

  void read_payload(const Folder& folder, const std::string& name, const JsonFields& fields,
      const std::string& where) {
    if (!names_.insert(name).second) refuse(where, "is among the weights and the constants");
    const std::string part = folder.path + fields.text("path_name");
    if (!fields.has("tensor_meta"))
      refuse(where, "an object of Python or C++, which is not read, let alone executed");
    if (fields.flag("use_pickle")) {
      add_pickled(name, part, where);
      return;
    }
    const View view = read_view(part, fields.object("tensor_meta").items(), where);
    if (fields.flag("is_param")) parameters_.insert(view);
    auto found = bytes_of_.find(view);
    if (found == bytes_of_.end()) {
      const auto bytes = bytes_in(view, where, name);
      found = bytes_of_.emplace(view, bytes).first;
    }
    entries_.push_back({name, view.type, view.shape, found->second});
  }

  void add_pickled(const std::string& name, const std::string& part, const std::string& where) {
    const TorchFile file = parse_torch_file(parts_.at(part).bytes, where);
    const auto* const tensor = std::get_if<TorchTensor>(&file.value.content);
    if (tensor == nullptr) refuse(where, "is pickled, and not a plain tensor");
    memory_.spend(tensor->bytes.size(), where);
    entries_.push_back({name, tensor->type, tensor->shape, tensor->bytes});
    memory_.pickles.push_back(file.memory);
  }

  // The part has all elements of the view's storage.
  std::span<const std::uint8_t> bytes_in(
      const View& view, const std::string& where, const std::string& name) {
    const auto storage = parts_.at(view.part).bytes;
    const std::size_t element = bytes_of(view.type);
    const std::string what = concat(torch_name(view.type), " of shape ", shape_text(view.shape));
    const auto size = tensor_bytes(view.type, view.shape);
    if (!size) refuse(where, what, ", has too many elements");
    if (*size == 0) return {};
    if (storage.empty()) {
      refuse(where, what,
          ", has no bytes: it was exported with fake tensors; export the model with its weights");
    }
    const auto end = view_end(view.offset, view.shape, view.strides);
    if (!end || *end > storage.size() / element) {
      refuse(where, what, ", reaches beyond the ", storage.size(), " bytes of ", shown(view.part));
    }
    extents_.push_back({view, view.offset * element, *end * element, name, where});
    const auto bytes = storage.subspan(view.offset * element);
    if (is_contiguous(view.shape, view.strides)) return bytes.first(*size);
    return copied(view, bytes, *size, where);
  }

  std::span<const std::uint8_t> copied(const View& view, std::span<const std::uint8_t> bytes,
      std::uint64_t size, const std::string& where) {
    memory_.spend(size, where);
    auto& copy = memory_.copies.emplace_back(size);
    copy_row_major(copy, bytes, view.shape, view.strides, bytes_of(view.type));
    return copy;
  }

  // Training would change both in Python, and here only one.
  void check_overlaps() {
    std::sort(extents_.begin(), extents_.end(), [](const Extent& left, const Extent& right) {
      return std::tie(left.view.part, left.begin) < std::tie(right.view.part, right.begin);
    });
    const Extent* furthest = nullptr;
    const Extent* furthest_parameter = nullptr;
    for (const Extent& extent : extents_) {
      const bool is_parameter = parameters_.contains(extent.view);
      for (const Extent* other : {furthest_parameter, is_parameter ? furthest : nullptr}) {
        if (other != nullptr && other->view.part == extent.view.part && extent.begin < other->end)
          refuse(extent.where, "shares elements with ", shown(other->name),
              " without being the same, and one of them is a parameter; in Python, clone() one");
      }
      reach(furthest, extent);
      if (is_parameter) reach(furthest_parameter, extent);
    }
  }

  static void reach(const Extent*& furthest, const Extent& extent) {
    const bool is_further = furthest == nullptr || furthest->view.part != extent.view.part ||
                            furthest->end < extent.end;
    if (is_further) furthest = &extent;
  }

  const Parts& parts_;
  Memory& memory_;
  std::vector<TensorEntry> entries_;
  std::set<std::string> names_;
  std::map<View, std::span<const std::uint8_t>> bytes_of_;
  std::set<View> parameters_;  // the tensors that some name says are parameters
  std::vector<Extent> extents_;
};

}  // namespace

FileMemory memory_of(const std::shared_ptr<Memory>& memory) {
  return FileMemory(memory, memory->file ? &*memory->file : nullptr);
}

TensorFile read_tensors(
    const Parts& parts, const std::string& program, const std::shared_ptr<Memory>& memory) {
  TensorReader reader(parts, *memory);
  for (const Folder& folder : {kWeights, kConstants}) reader.read(folder, program);
  return TensorFile(reader.take_entries(), {}, memory_of(memory));
}

std::map<std::string, View> views_of_weights(const Parts& parts, const std::string& program) {
  std::map<std::string, View> views;
  for_each_payload(parts, kWeights, program,
      [&](const std::string& name, const JsonFields& fields, const std::string& where) {
        if (fields.flag("use_pickle")) refuse(where, "is pickled, so that it cannot be replaced");
        const std::string part = kWeights.path + fields.text("path_name");
        views.emplace(name, read_view(part, fields.object("tensor_meta").items(), where));
      });
  return views;
}

}  // namespace lockstep::exported
