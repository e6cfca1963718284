// Reads files of torch.save and says what is in them: a path a line on stdin, a line of JSON each
// on stdout, either
// {"refused": MESSAGE} or {"value": TREE}. A TREE is null, a bool, an integer, a text, {"float":
// its 64 bits},
// {"other": what it is},
// {"list": [TREE...]}, {"dict": [[KEY, TREE]...]} or {"tensor": [TYPE, SHAPE, CRC-32 of the
// bytes]}.
#include <bit>
#include <iostream>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/formats/weights/torch_file.h"

namespace {

using nlohmann::json;

struct Spelling {
  json operator()(std::monostate) const { return nullptr; }
  json operator()(bool value) const { return value; }
  json operator()(std::int64_t value) const { return value; }
  json operator()(double value) const { return {{"float", std::bit_cast<std::uint64_t>(value)}}; }
  json operator()(const std::string& value) const { return value; }

  json operator()(const lockstep::TorchList& list) const {
    json items = json::array();
    for (const auto& item : list.items) items.push_back(std::visit(*this, item.content));
    return {{"list", items}};
  }

  json operator()(const lockstep::TorchDict& dict) const {
    json items = json::array();
    for (const auto& [key, value] : dict.items) {
      items.push_back(json::array({std::visit([](const auto& name) { return json(name); }, key),
          std::visit(*this, value.content)}));
    }
    return {{"dict", items}};
  }

  json operator()(const lockstep::TorchOther& other) const { return {{"other", other.what}}; }

  json operator()(const lockstep::TorchTensor& tensor) const {
    const auto sum = crc32_z(0, tensor.bytes.data(), tensor.bytes.size());
    return {{"tensor", json::array({lockstep::torch_name(tensor.type), tensor.shape, sum})}};
  }
};

json answer(const std::string& path) {
  try {
    const auto file = lockstep::read_torch_file(path);
    return {{"value", std::visit(Spelling(), file.value.content)}};
  } catch (const lockstep::DataError& error) {
    return {{"refused", error.what()}};
  }
}

int body(int, char**) {
  for (std::string path; std::getline(std::cin, path);) std::cout << answer(path).dump() << '\n';
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return lockstep::run_program("weight_values", body, count, arguments);
}
