#include "lockstep/formats/fetch/download.h"

#include <algorithm>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/fetch/partial_file.h"

namespace lockstep {
namespace {

constexpr int kRangeNotSatisfiable = 416;
// A server that sent nothing for so long twice will not do better at the fourth time.
constexpr int kAttemptsAtSilence = 2;

/// One file on its way: its bytes and what is known of them.
class Arrival final : public BodySink {
 public:
  Arrival(const Download& wanted, PartialFile& file, const DownloadOptions& options)
      : wanted_(wanted), file_(file), options_(options) {}

  void expect(std::uint64_t bytes) override {
    if (bytes != wanted_.bytes)
      throw DataError(concat("has ", bytes, " bytes where there must be ", wanted_.bytes));
  }

  void restart() override { file_.restart(); }

  void write(std::span<const std::uint8_t> bytes) override {
    if (bytes.size() > wanted_.bytes - file_.size()) {
      throw DataError(concat("sends more than the ", wanted_.bytes, " bytes that it must be"));
    }
    file_.append(bytes);
    if (options_.progress) options_.progress(file_.size(), wanted_.bytes);
  }

  /// Returns what is wrong with the bytes; nothing if they are what they must be.
  std::optional<std::string> fault() const {
    if (file_.size() != wanted_.bytes) {
      return concat("sends ", file_.size(), " bytes where there must be ", wanted_.bytes);
    }
    const std::string sha256 = file_.sha256();
    if (sha256 == wanted_.sha256) return std::nullopt;
    return concat("sends bytes of SHA-256 ", sha256, " where it must be ", wanted_.sha256);
  }

 private:
  const Download& wanted_;
  PartialFile& file_;
  const DownloadOptions& options_;
};

void check_wanted(const Download& wanted) {
  check(is_sha256(wanted.sha256), "download: this is not a SHA-256: ", wanted.sha256);
  check(!wanted.addresses.empty(), "download: no address is given for ", wanted.name);
  check(wanted.bytes > 0, "download: the size must be known: ", wanted.name);
}

/// Returns whether the right file is there; throws if another one is.
bool is_there(const Download& wanted, const std::filesystem::path& path) {
  const auto status = std::filesystem::symlink_status(path);
  if (!std::filesystem::exists(status)) return false;
  const std::string sha256 = sha256_of_file(path);
  if (sha256 == wanted.sha256) return true;
  throw DataError(concat(path.string(), ": already exists, but its SHA-256 is ", sha256,
      " and must be ", wanted.sha256, "; move it away"));
}

void notify(const DownloadOptions& options, const std::string& text) {
  if (options.notice) options.notice(text);
}

void pause(const DownloadOptions& options, int attempt, std::chrono::seconds asked) {
  auto length = options.first_pause;
  for (int i = 1; i < attempt && length < options.longest_pause; ++i) length *= 2;
  const auto wished = std::max<std::chrono::milliseconds>(length, asked);
  std::this_thread::sleep_for(std::min(wished, options.longest_pause));
}

std::string in_words(const std::string& address, const TransferResult& result) {
  return concat("download ", address, result.detail.empty() ? "" : ": ", result.detail);
}

/// Brings the whole file from one address; throws when that cannot give it.
void bring(const std::string& address, Arrival& arrival, PartialFile& file, Transfer& transfer,
    const DownloadOptions& options) {
  std::string entity_tag;
  for (int attempt = 1;; ++attempt) {
    const std::uint64_t before = file.size();
    const auto result = transfer.get(address, file.size(), entity_tag, arrival);
    entity_tag = result.entity_tag;
    if (result.error) {
      const std::system_error error(result.error, in_words(address, result));
      const bool is_silent = result.is_stalled && file.size() == before;
      const int attempts =
          is_silent ? std::min(kAttemptsAtSilence, options.attempts) : options.attempts;
      if (!result.may_pass || attempt >= attempts) throw error;
      if (result.error.value() == kRangeNotSatisfiable) file.restart();
      notify(options, concat(error.what(), "; trying again"));
      pause(options, attempt, result.retry_after);
      continue;
    }
    const auto fault = arrival.fault();
    if (!fault) return;
    file.restart();
    // What was kept from before may be to blame.
    if (before == 0) throw DataError(*fault);
    notify(options, concat(address, ": ", *fault, "; trying again from its start"));
  }
}

/// Asks one address after the other.
void bring_from_any(const Download& wanted, PartialFile& file, const DownloadOptions& options) {
  Arrival arrival(wanted, file, options);
  if (file.size() == wanted.bytes && !arrival.fault()) return;
  if (file.size() >= wanted.bytes) file.restart();
  Transfer transfer(options.transfer);
  for (std::size_t i = 0;; ++i) {
    const bool last = i + 1 == wanted.addresses.size();
    const std::string& address = wanted.addresses[i];
    try {
      bring(address, arrival, file, transfer, options);
      return;
    } catch (const DataError& error) {
      file.restart();
      const std::string text = concat("download ", address, ": ", error.what());
      if (last) {
        file.remove();
        throw DataError(text);
      }
      notify(options, concat(text, "; trying the next address"));
    } catch (const std::system_error& error) {
      if (last || error.code().category() != transfer_errors()) throw;
      notify(options, concat(error.what(), "; trying the next address"));
    }
  }
}

}  // namespace

bool download(const Download& wanted, const std::filesystem::path& directory,
    const DownloadOptions& options) {
  check_wanted(wanted);
  std::filesystem::create_directories(directory);
  if (is_there(wanted, directory / wanted.name)) return false;
  PartialFile file(directory, wanted.name);
  bring_from_any(wanted, file, options);
  file.finish();
  return true;
}

}  // namespace lockstep
