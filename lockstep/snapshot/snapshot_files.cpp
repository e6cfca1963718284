#include "lockstep/snapshot/snapshot_files.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/types.h>
#include <torch/version.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/formats/weights/tensor_parts.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {

template <typename Object>
void list_fields(Object& object, WrittenFile& written) {
  object("file", written.file);
  object("tensors", written.tensors);
  object("tensor_bytes", written.tensor_bytes);
  object("has_parts", written.has_parts);
}

namespace {

using nlohmann::json;

// Python's libraries look for an index of weights only.
bool needs_index(const std::string& file) {
  const auto name = parse_snapshot_file_name(file);
  return name && name->parts > 1 && name->group.starts_with("model");
}

bool has_parts(std::span<const WrittenFile> files) {
  return std::ranges::any_of(files, &WrittenFile::has_parts);
}

}  // namespace

OwnFile own_file(const std::string& name, std::vector<TensorEntry> entries,
    std::map<std::string, std::string> metadata) {
  OwnFile own{
      .facts = {.file = {.name = name, .sha256 = {}}, .has_parts = metadata.contains(kTensorParts)},
      .write = {}};
  if (needs_index(name)) {
    for (const TensorEntry& entry : entries) {
      own.facts.tensors.push_back(entry.name);
      own.facts.tensor_bytes += entry.bytes.size();
    }
  }
  own.write = [entries = std::move(entries), metadata = std::move(metadata)](
                  ByteSink& sink) { write_safetensors(sink, entries, metadata); };
  return own;
}

WrittenFile write_own(const OwnFile& own, PendingSnapshot& pending) {
  WrittenFile written = own.facts;
  written.file = pending.write(written.file.name, own.write);
  return written;
}

std::string to_json(const std::vector<WrittenFile>& files) {
  return JsonWriter::json_of(files).dump();
}

std::optional<std::vector<WrittenFile>> parse_written_files(const std::string& text) {
  const json entries = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (entries.is_discarded()) return std::nullopt;  // its writer is in the middle of it
  std::vector<WrittenFile> files;
  for (const json& entry : entries)
    files.push_back(JsonReader::read<WrittenFile>(JsonFields(entry, "the list of files")));
  return files;
}

std::optional<std::vector<WrittenFile>> read_written_files(const std::filesystem::path& list) {
  std::ifstream stream(list, std::ios::binary);
  if (!stream) return std::nullopt;
  return parse_written_files({std::istreambuf_iterator<char>(stream), {}});
}

std::map<std::string, std::string> index_files(std::span<const WrittenFile> files) {
  const json none{{"metadata", {{"total_size", 0}}}, {"weight_map", json::object()}};
  std::map<std::string, json> indexes;
  for (const WrittenFile& written : files) {
    if (has_parts(files) || !needs_index(written.file.name)) continue;
    const std::string group = parse_snapshot_file_name(written.file.name)->group;
    json& index = indexes.try_emplace(group + ".safetensors.index.json", none).first->second;
    json& bytes = index["metadata"]["total_size"];
    bytes = bytes.get<std::uint64_t>() + written.tensor_bytes;
    for (const std::string& name : written.tensors) index["weight_map"][name] = written.file.name;
  }
  std::map<std::string, std::string> texts;
  for (const auto& [name, index] : indexes) texts.emplace(name, index.dump(2) + "\n");
  return texts;
}

void commit_files(PendingSnapshot& pending, std::vector<WrittenFile> files) {
  for (const auto& [name, text] : index_files(files))
    files.push_back({.file = pending.write(name, text)});
  SnapshotManifest manifest{.step = pending.step(),
      .libtorch = TORCH_VERSION,
      .lockstep = {},
      .has_parts = has_parts(files),
      .files = {}};
  for (WrittenFile& written : files) manifest.files.push_back(std::move(written.file));
  pending.commit(std::move(manifest));
}

namespace {

constexpr std::int64_t kPiece = std::int64_t{4} << 20;
// In the place of the number of bytes that follow.
constexpr std::int64_t kEnd = -1;
constexpr std::int64_t kGivenUp = -2;

torch::Tensor number(std::int64_t value) { return at::full({1}, value, on_host(torch::kLong)); }

torch::Tensor empty_piece() { return at::empty({kPiece}, on_host(torch::kByte)); }

/// A sink whose bytes other ranks receive by receive_file(), in pieces of a few MiB, and this
/// rank's disk takes first if there is to be a copy.
class FileSender final : public ByteSink {
 public:
  FileSender(const ProcessGroup& group, const std::vector<int>& receivers)
      : group_(group), receivers_(receivers), piece_(empty_piece()) {}

  /// Writes `file` to the others and `copy`.
  void send(const OwnFile& file, ByteSink* copy) {
    copy_ = copy;
    file.write(*this);
  }

  /// Sends what is left, and that this is all.
  void finish() {
    send_piece();
    send(number(kEnd));
  }

  /// Sends that the file will not become whole.
  void give_up() { send(number(kGivenUp)); }

 private:
  void put(std::span<const std::uint8_t> bytes) override {
    if (copy_ != nullptr) copy_->write(bytes);
    while (!bytes.empty() && !receivers_.empty()) {
      const auto room = static_cast<std::size_t>(kPiece - filled_);
      const auto part = bytes.first(std::min(room, bytes.size()));
      std::memcpy(piece_.mutable_data_ptr<std::uint8_t>() + filled_, part.data(), part.size());
      filled_ += std::ssize(part);
      bytes = bytes.subspan(part.size());
      if (filled_ == kPiece) send_piece();
    }
  }

  void send_piece() {
    if (filled_ == 0) return;
    send(number(filled_));
    send(piece_.narrow(0, 0, filled_));
    filled_ = 0;
  }

  void send(const torch::Tensor& tensor) {
    std::vector<Work> sent;
    for (const int receiver : receivers_) sent.push_back(group_.send(tensor, receiver));
    for (Work& work : sent) work.wait();
  }

  const ProcessGroup& group_;
  const std::vector<int>& receivers_;
  ByteSink* copy_ = nullptr;
  torch::Tensor piece_;
  std::int64_t filled_ = 0;  // bytes of it
};

/// Receives a file into a sink, if there is one, and returns whether it is whole: not if the sender
/// gave up. What the sink throws is thrown once the rest has come, so that the sender never waits
/// in vain.
bool receive_file(const ProcessGroup& group, int sender, ByteSink* sink) {
  const torch::Tensor size = number(0), piece = empty_piece();
  std::exception_ptr failure;
  while (true) {
    group.recv(size, sender).wait();
    const auto bytes = size.item<std::int64_t>();
    if (bytes == kGivenUp) return false;
    if (bytes == kEnd) break;
    group.recv(piece.narrow(0, 0, bytes), sender).wait();
    if (sink == nullptr || failure) continue;
    try {
      const auto count = static_cast<std::size_t>(bytes);
      sink->write(std::span(piece.const_data_ptr<std::uint8_t>(), count));
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return true;
}

/// The sender of a file could not go on, and says so itself.
struct GivenUp {};

/// One rank's part of the exchange.
class Spread {
 public:
  Spread(const ProcessGroup& group, const std::vector<int>& receivers, PendingSnapshot* pending,
      std::exception_ptr failure)
      : group_(group), pending_(pending), failure_(std::move(failure)) {
    for (const int receiver : receivers)
      if (receiver != group.rank()) others_.push_back(receiver);
    receives_ = others_.size() < receivers.size();
  }

  void give(const OwnFile& file) {
    FileSender sender(group_, others_);
    try {
      if (is_void()) return sender.give_up();
      if (receives_) {
        const auto write = [&](ByteSink& disk) { sender.send(file, &disk); };
        files_.push_back(write_own({.facts = file.facts, .write = write}, *pending_));
      } else {
        sender.send(file, nullptr);
      }
    } catch (...) {
      note(std::current_exception());
      return sender.give_up();
    }
    sender.finish();
  }

  void take(int sender, WrittenFile facts) {
    bool has_begun = false;
    const auto receive = [&](ByteSink& disk) {
      has_begun = true;
      if (!receive_file(group_, sender, &disk)) throw GivenUp();
    };
    try {
      if (!is_void()) {
        files_.push_back(write_own({.facts = std::move(facts), .write = receive}, *pending_));
        return;
      }
    } catch (const GivenUp&) {
      has_lost_ = true;
    } catch (...) {
      note(std::current_exception());
    }
    if (!has_begun) receive_file(group_, sender, nullptr);
  }

  bool receives() const { return receives_; }

  std::optional<std::vector<WrittenFile>> end() && {
    double failures = failure_ ? 1 : 0;
    maximize({&failures}, group_);
    if (failure_) std::rethrow_exception(failure_);
    return failures > 0 ? std::nullopt : std::optional(std::move(files_));
  }

 private:
  bool is_void() const { return failure_ != nullptr || has_lost_; }

  void note(const std::exception_ptr& failure) {
    if (!failure_) failure_ = failure;
  }

  const ProcessGroup& group_;
  PendingSnapshot* pending_;
  std::exception_ptr failure_;
  std::vector<int> others_;
  bool receives_ = false;
  bool has_lost_ = false;  // a file of another rank
  std::vector<WrittenFile> files_;
};

}  // namespace

std::optional<std::vector<WrittenFile>> spread_files(const ProcessGroup& group,
    const std::vector<int>& receivers, PendingSnapshot* pending, const std::vector<OwnFile>& own,
    std::exception_ptr failure) {
  Spread spread(group, receivers, pending, std::move(failure));
  std::vector<WrittenFile> facts;
  for (const OwnFile& file : own) facts.push_back(file.facts);
  int rank = 0;
  for (const std::string& others : all_texts(to_json(facts), group)) {
    if (rank == group.rank()) {
      for (const OwnFile& file : own) spread.give(file);
    } else if (spread.receives()) {
      auto files = parse_written_files(others);  // what a rank of this library has written
      for (WrittenFile& file : *files) spread.take(rank, std::move(file));
    }
    ++rank;
  }
  return std::move(spread).end();
}

}  // namespace lockstep
