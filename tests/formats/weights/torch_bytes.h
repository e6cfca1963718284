#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::testing {

/// A file of an archive to be made; what is set says something else than the truth.
struct ZipPart {
  std::string name = {};
  std::string content = {};
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::optional<std::uint32_t> checksum = {};    ///< in both headers
  std::optional<std::uint64_t> size = {};        ///< in the directory, both sizes
  std::optional<std::uint32_t> header = {};      ///< in the directory: where its own header begins
  std::optional<std::string> local_name = {};    ///< in its own header
  std::optional<std::uint32_t> local_size = {};  ///< in its own header, both sizes
  std::string descriptor = {};                   ///< what lies behind its bytes
  std::string extra = {};                        ///< in the directory
  std::string local_extra = {};                  ///< in its own header
};

/// Makes an archive with 32-bit numbers, or with the 64-bit end that PyTorch writes.
std::vector<std::uint8_t> zip_bytes(const std::vector<ZipPart>& parts, bool is_wide = false);

/// Returns the checksum of a text.
std::uint32_t checksum_of(const std::string& text);

/// Returns numbers of so many bytes, one behind the other.
std::string numbers(int bytes, const std::vector<std::uint64_t>& values);

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
