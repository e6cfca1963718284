#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/formats/weights/zip_bytes.h"

namespace lockstep::testing {

/// Makes the file of torch.save with that pickle and one storage, named 0.
std::vector<std::uint8_t> torch_bytes(const std::string& pickle, const std::string& storage = "");

// Pieces of pickles, as torch.save writes them.

/// Begins with its protocol, ends with STOP.
std::string pickle_of(const std::string& opcodes);
std::string text(const std::string& content);
std::string integer(std::int64_t number);
std::string tuple(const std::vector<std::int64_t>& numbers);
std::string name(const std::string& module, const std::string& name);
std::string empty_ordered_dict();

/// The parts of a tensor of the storage 0; each can be made to lie.
struct TensorParts {
  std::string storage_type = name("torch", "FloatStorage");
  std::string storage_size = integer(6);
  std::string offset = integer(0);
  std::string shape = tuple({2, 3});
  std::string strides = tuple({3, 1});
  std::string requires_grad = "\x89";
  std::string hooks = empty_ordered_dict();
  std::string more = {};
};

/// Makes the opcodes of a tensor.
std::string tensor(const TensorParts& parts = {});

/// Makes the pickle of `{"a": VALUE}`.
std::string dict_of(const std::string& value);

}  // namespace lockstep::testing
