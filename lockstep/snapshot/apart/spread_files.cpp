#include "lockstep/snapshot/apart/spread_files.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/snapshot/group_values.h"

namespace lockstep {
namespace {

/// A sink whose bytes other ranks receive by receive_file(), in pieces of a few MiB.
class FileSender final : public ByteSink {
 public:
  FileSender(const ProcessGroup& group, std::vector<int> receivers);

  /// Sends what is left, and that this is all.
  void finish();

  /// Sends that the file will not become whole.
  void give_up();

 private:
  void put(std::span<const std::uint8_t> bytes) override;
  void send_piece();
  void send(const torch::Tensor& tensor);

  ProcessGroup group_;
  std::vector<int> receivers_;
  torch::Tensor piece_;
  std::int64_t filled_ = 0;  // bytes of it
};

constexpr std::int64_t kPiece = std::int64_t{4} << 20;
// In the place of the number of bytes that follow.
constexpr std::int64_t kEnd = -1;
constexpr std::int64_t kGivenUp = -2;

torch::Tensor number(std::int64_t value) { return at::full({1}, value, on_host(torch::kLong)); }

torch::Tensor empty_piece() { return at::empty({kPiece}, on_host(torch::kByte)); }

class Nowhere final : public ByteSink {
  void put(std::span<const std::uint8_t>) override {}
};

FileSender::FileSender(const ProcessGroup& group, std::vector<int> receivers)
    : group_(group), receivers_(std::move(receivers)), piece_(empty_piece()) {}

void FileSender::put(std::span<const std::uint8_t> bytes) {
  while (!bytes.empty() && !receivers_.empty()) {
    const auto room = static_cast<std::size_t>(kPiece - filled_);
    const auto part = bytes.first(std::min(room, bytes.size()));
    std::memcpy(piece_.mutable_data_ptr<std::uint8_t>() + filled_, part.data(), part.size());
    filled_ += std::ssize(part);
    bytes = bytes.subspan(part.size());
    if (filled_ == kPiece) send_piece();
  }
}

void FileSender::send_piece() {
  if (filled_ == 0) return;
  send(number(filled_));
  send(piece_.narrow(0, 0, filled_));
  filled_ = 0;
}

void FileSender::send(const torch::Tensor& tensor) {
  std::vector<Work> sent;
  for (const int receiver : receivers_) sent.push_back(group_.send(tensor, receiver));
  for (Work& work : sent) work.wait();
}

void FileSender::finish() {
  send_piece();
  send(number(kEnd));
}

void FileSender::give_up() { send(number(kGivenUp)); }

/// Receives a file into a sink, and returns whether it is whole: not if the sender gave up. What
/// the sink throws is thrown once the rest has come, so that the sender never waits in vain.
bool receive_file(const ProcessGroup& group, int sender, ByteSink& sink) {
  const torch::Tensor size = number(0), piece = empty_piece();
  std::exception_ptr failure;
  while (true) {
    group.recv(size, sender).wait();
    const auto bytes = size.item<std::int64_t>();
    if (bytes == kGivenUp) return false;
    if (bytes == kEnd) break;
    group.recv(piece.narrow(0, 0, bytes), sender).wait();
    try {
      const auto count = static_cast<std::size_t>(bytes);
      if (!failure) sink.write(std::span(piece.const_data_ptr<std::uint8_t>(), count));
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return true;
}

/// Drains and discards a file.
void discard_file(const ProcessGroup& group, int sender) {
  Nowhere nowhere;
  receive_file(group, sender, nowhere);
}

/// Writes to two sinks.
class Tee final : public ByteSink {
 public:
  Tee(ByteSink& one, ByteSink& other) : one_(one), other_(other) {}

 private:
  void put(std::span<const std::uint8_t> bytes) override {
    one_.write(bytes);
    other_.write(bytes);
  }

  ByteSink& one_;
  ByteSink& other_;
};

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
      WrittenFile written = file.facts;
      if (receives_)
        written.file = pending_->write(written.file.name, [&](ByteSink& disk) {
          Tee both(disk, sender);
          file.write(both);
        });
      else
        file.write(sender);
      if (receives_) files_.push_back(std::move(written));
    } catch (...) {
      note(std::current_exception());
      return sender.give_up();
    }
    sender.finish();
  }

  void take(int sender, WrittenFile facts) {
    bool has_begun = false;
    try {
      if (is_void()) return discard_file(group_, sender);
      facts.file = pending_->write(facts.file.name, [&](ByteSink& disk) {
        has_begun = true;
        if (!receive_file(group_, sender, disk)) throw GivenUp();
      });
      files_.push_back(std::move(facts));
    } catch (const GivenUp&) {
      has_lost_ = true;
    } catch (...) {
      note(std::current_exception());
      if (!has_begun) discard_file(group_, sender);
    }
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

std::string names_of(const std::vector<OwnFile>& own) {
  std::vector<WrittenFile> facts;
  for (const OwnFile& file : own) facts.push_back(file.facts);
  return to_json(facts);
}

}  // namespace

std::optional<std::vector<WrittenFile>> spread_files(const ProcessGroup& group,
    const std::vector<int>& receivers, PendingSnapshot* pending, const std::vector<OwnFile>& own,
    std::exception_ptr failure) {
  Spread spread(group, receivers, pending, std::move(failure));
  int rank = 0;
  for (const std::string& names : all_texts(names_of(own), group)) {
    if (rank == group.rank()) {
      for (const OwnFile& file : own) spread.give(file);
    } else if (spread.receives()) {
      auto files = parse_written_files(names);  // what a rank of this library has written
      for (WrittenFile& file : *files) spread.take(rank, std::move(file));
    }
    ++rank;
  }
  return std::move(spread).end();
}

}  // namespace lockstep
