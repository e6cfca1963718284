#include "lockstep/train/snapshot/apart/spread_files.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/train/snapshot/apart/file_transfer.h"
#include "lockstep/train/snapshot/group_values.h"

namespace lockstep {
namespace {

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
