#include "tests/formats/weights/torch_bytes.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep::testing {

std::vector<std::uint8_t> torch_bytes(const std::string& pickle, const std::string& storage) {
  return zip_bytes(
      {{.name = "x/data.pkl", .content = pickle}, {.name = "x/byteorder", .content = "little"},
          {.name = "x/data/0", .content = storage}, {.name = "x/version", .content = "3\n"}});
}

std::string pickle_of(const std::string& opcodes) { return concat("\x80\x02", opcodes, '.'); }

std::string text(const std::string& content) {
  std::string bytes = "X";
  append_little_endian(bytes, content.size(), 4);
  return bytes + content;
}

std::string integer(std::int64_t number) {
  std::string bytes = "\x8a\x08";
  append_little_endian(bytes, static_cast<std::uint64_t>(number), 8);
  return bytes;
}

std::string tuple(const std::vector<std::int64_t>& numbers) {
  std::string bytes = "(";
  for (const std::int64_t number : numbers) bytes += integer(number);
  return bytes + "t";
}

std::string name(const std::string& module, const std::string& name) {
  return concat('c', module, '\n', name, '\n');
}

std::string empty_ordered_dict() { return name("collections", "OrderedDict") + ")R"; }

std::string tensor(const TensorParts& parts) {
  return name("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") + parts.storage_type +
         text("0") + text("cpu") + parts.storage_size + "tQ" + parts.offset + parts.shape +
         parts.strides + parts.requires_grad + parts.hooks + parts.more + "tR";
}

std::string dict_of(const std::string& value) {
  return pickle_of(concat('}', text("a"), value, 's'));
}

}  // namespace lockstep::testing
