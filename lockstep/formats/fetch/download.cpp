#include "lockstep/formats/fetch/download.h"

#include <algorithm>
#include <cerrno>
#include <curl/curl.h>
#include <exception>
#include <fcntl.h>
#include <memory>
#include <new>
#include <optional>
#include <stdio.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/output_file.h"

namespace lockstep {
namespace {

FileDescriptor locked(const OpenDirectory& directory, const std::string& part_name) {
  LockedFile opened = open_locked(directory, part_name);
  const std::string path = directory.path_of(part_name);
  check(opened.refusal != EWOULDBLOCK, path,
      ": another process is downloading it; wait for it to finish");
  errno = opened.refusal;
  if (errno != 0) throw_errno("lock", path);
  return std::move(opened.file);
}

std::uint64_t size_of(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_errno("fstat", path);
  return static_cast<std::uint64_t>(status.st_size);
}

std::string checked_name(const std::string& name) {
  check(!name.empty() && name.find('/') == std::string::npos,
      "a download needs the name of a file, without a folder: ", name);
  return name;
}

constexpr long kMostRedirects = 5;
constexpr long kConnectMilliseconds = 30'000;
constexpr long kSlowestBytesPerSecond = 1000;  // less than this for `slow_time` ends it
constexpr std::chrono::milliseconds kLongestPause = std::chrono::seconds(30);
constexpr long kWhole = 200;
constexpr long kPart = 206;
constexpr int kFirstStatus = 100;

struct FreeCurl {
  void operator()(CURLU* url) const noexcept { curl_url_cleanup(url); }
  void operator()(curl_slist* list) const noexcept { curl_slist_free_all(list); }
  void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
};

/// Returns a part of an address; empty when it has none.
std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  const std::string value(text);
  curl_free(text);
  return value;
}

bool is_loopback(const std::string& host) {
  return host == "127.0.0.1" || host == "[::1]" || host == "localhost";
}

/// Refuses every address but https without a password; http to this host's loopback is taken if
/// that is allowed.
void check_download_address(const std::string& address, bool plain_on_loopback) {
  const std::unique_ptr<CURLU, FreeCurl> url(curl_url());
  if (!url) throw std::bad_alloc();
  check(curl_url_set(url.get(), CURLUPART_URL, address.c_str(), 0) == CURLUE_OK,
      "download: this is not an https address: ", address);
  check(
      part_of(url.get(), CURLUPART_USER).empty() && part_of(url.get(), CURLUPART_PASSWORD).empty(),
      "download: an address must hold no password, logs would show it");
  const std::string scheme = part_of(url.get(), CURLUPART_SCHEME);
  const bool plain =
      plain_on_loopback && scheme == "http" && is_loopback(part_of(url.get(), CURLUPART_HOST));
  check(plain || scheme == "https", "download: only https is taken: ", address);
}

/// Returns whether an HTTP status describes a state of the server that may be gone a little later.
bool status_may_pass(long status) {
  return status == 408 || status == 416 || status == 429 || status == 500 || status == 502 ||
         status == 503 || status == 504;
}

/// Returns where a part begins, from the header's value `bytes 100-199/200` (RFC 9110, 14.4).
std::optional<std::uint64_t> first_byte_of(const std::string& content_range) {
  constexpr std::string_view kUnit = "bytes ";
  const std::size_t end = content_range.find('-');
  if (!content_range.starts_with(kUnit) || end == std::string::npos) return std::nullopt;
  const std::string_view range = content_range;
  return parse_number<std::uint64_t>(range.substr(kUnit.size(), end - kUnit.size()));
}

/// Returns the size of the whole file by the same header; nothing for `bytes 100-199/*`.
std::optional<std::uint64_t> whole_size_of(const std::string& content_range) {
  const std::size_t slash = content_range.find('/');
  if (slash == std::string::npos) return std::nullopt;
  return parse_number<std::uint64_t>(std::string_view(content_range).substr(slash + 1));
}

/// Returns whether an entity tag vouches for every byte (RFC 9110, 8.8.3); only such a one may
/// resume.
bool is_strong_tag(const std::string& tag) {
  return tag.size() >= 2 && tag.front() == '"' && tag.back() == '"';
}

/// The failures of a server and of the way to it: HTTP statuses from 100 on, below them curl's
/// codes.
class TransferErrors final : public std::error_category {
 public:
  const char* name() const noexcept override { return "transfer"; }
  std::string message(int code) const override {
    if (code >= kFirstStatus) return concat("HTTP status ", code);
    return curl_easy_strerror(static_cast<CURLcode>(code));
  }
};

const std::error_category& transfer_errors() {
  static const TransferErrors kCategory;
  return kCategory;
}

/// Lists failures of the way to the server, which may be gone a little later.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

void start_curl_once() {
  static const CURLcode kStarted = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (kStarted != CURLE_OK) throw Error("download: curl cannot be started");
}

/// Returns what is wrong with the bytes that came; nothing if they are what they must be.
std::optional<std::string> fault_of(const PartialFile& file, const Download& wanted) {
  if (file.size() != wanted.bytes) {
    return concat("sends ", file.size(), " bytes where there must be ", wanted.bytes);
  }
  const std::string sha256 = file.sha256();
  if (sha256 == wanted.sha256) return std::nullopt;
  return concat("sends bytes of SHA-256 ", sha256, " where it must be ", wanted.sha256);
}

/// The end of one request.
struct TransferResult {
  std::error_code error;    ///< none if the whole body came
  bool may_pass = false;    ///< the failure may be gone at the next attempt
  bool is_stalled = false;  ///< too little came for too long
  std::string detail;       ///< more about the failure, or empty
  std::string entity_tag;   ///< names this state of the file, if the server gave a strong one
  std::chrono::seconds retry_after{0};  ///< how long the server asks to be left alone
};

/// A client that gets one file by https, with curl: certificates are verified, redirects are
/// followed five times and only to https, proxies are taken from the usual variables
/// (`https_proxy`, ...).
class Transfer {
 public:
  Transfer(const Download& wanted, PartialFile& file, const DownloadOptions& options)
      : wanted_(wanted), file_(file), options_(options) {
    start_curl_once();
    curl_.reset(curl_easy_init());
    if (!curl_) throw std::bad_alloc();
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  /// Asks an address for what the file does not have yet, and appends what comes.
  ///
  /// `entity_tag` may be empty; else a file that changed since is sent from its start. An address
  /// that is not https is an InvalidArgument; what the file refuses is thrown here.
  TransferResult get(const std::string& address, const std::string& entity_tag) {
    check_download_address(address, options_.plain_on_loopback);
    prepare();
    set(CURLOPT_URL, address.c_str());
    const std::string range = concat(from_, "-");
    std::unique_ptr<curl_slist, FreeCurl> headers;
    if (from_ > 0) {
      set(CURLOPT_RANGE, range.c_str());
      if (!entity_tag.empty()) {
        headers.reset(curl_slist_append(nullptr, concat("If-Range: ", entity_tag).c_str()));
        if (!headers) throw std::bad_alloc();
        set(CURLOPT_HTTPHEADER, headers.get());
      }
    }
    const CURLcode code = curl_easy_perform(curl_.get());
    if (failure_) std::rethrow_exception(failure_);
    return result_of(code);
  }

 private:
  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl_easy_setopt(curl_.get(), option, value);
    if (code != CURLE_OK) throw Error(concat("download: curl: ", curl_easy_strerror(code)));
  }

  void prepare() {
    from_ = file_.size();
    has_begun_ = is_refused_ = false;
    failure_ = nullptr;
    curl_easy_reset(curl_.get());
    reason_[0] = '\0';
    set(CURLOPT_ERRORBUFFER, static_cast<char*>(reason_));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "lockstep");
    set(CURLOPT_PROTOCOLS_STR, options_.plain_on_loopback ? "http,https" : "https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirects);
    set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMilliseconds);
    set(CURLOPT_LOW_SPEED_LIMIT, kSlowestBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.slow_time.count()));
    set(CURLOPT_HEADERFUNCTION, &receive_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &receive);
    set(CURLOPT_WRITEDATA, this);
    if (!options_.certificates.empty()) {
      set(CURLOPT_CAINFO, options_.certificates.c_str());
      set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    }
  }

  // Called for each line of the headers; an empty one ends them.
  static std::size_t receive_header(
      char* bytes, std::size_t /*one*/, std::size_t size, void* user) noexcept {
    auto& transfer = *static_cast<Transfer*>(user);
    return transfer.guarded([&] {
      if (std::string_view(bytes, size) == "\r\n" && !transfer.has_begun_) transfer.hear_size();
      return size;
    });
  }

  static std::size_t receive(
      char* bytes, std::size_t /*one*/, std::size_t size, void* user) noexcept {
    auto& transfer = *static_cast<Transfer*>(user);
    const std::span piece(reinterpret_cast<const std::uint8_t*>(bytes), size);
    return transfer.guarded([&] { return transfer.take(piece); });
  }

  // Exceptions must not pass through curl's frames, which are C. Fewer bytes than it gave stop it.
  template <typename Body>
  std::size_t guarded(const Body& body) noexcept {
    try {
      return body();
    } catch (...) {
      failure_ = std::current_exception();
      return 0;
    }
  }

  // A server that has another file is not waited for.
  void hear_size() const {
    if (status() != kWhole && status() != kPart) return;
    const auto bytes = status() == kWhole ? parse_number<std::uint64_t>(header("content-length"))
                                          : whole_size_of(header("content-range"));
    if (bytes && *bytes != wanted_.bytes)
      throw DataError(concat("has ", *bytes, " bytes where there must be ", wanted_.bytes));
  }

  std::size_t take(std::span<const std::uint8_t> bytes) {
    if (!has_begun_) begin();
    if (is_refused_) return 0;
    if (bytes.size() > wanted_.bytes - file_.size()) {
      throw DataError(concat("sends more than the ", wanted_.bytes, " bytes that it must be"));
    }
    file_.append(bytes);
    if (options_.progress) options_.progress(file_.size(), wanted_.bytes);
    return bytes.size();
  }

  /// Looks at the answer before its first byte is taken.
  void begin() {
    has_begun_ = true;
    if (status() == kPart && from_ > 0) {
      is_refused_ = first_byte_of(header("content-range")) != from_;
    } else {
      is_refused_ = status() != kWhole;
      // The body begins at the file's first byte, although a later one was asked for.
      if (!is_refused_ && from_ > 0) file_.restart();
    }
  }

  TransferResult result_of(CURLcode code) const {
    TransferResult result;
    const long answer = status();
    if (is_refused_ || (code == CURLE_OK && answer != kWhole && !has_begun_)) {
      result.error = {static_cast<int>(answer), transfer_errors()};
      result.may_pass = status_may_pass(answer) || answer == kPart;
      if (answer == kPart) result.detail = "the server sent another part than it was asked for";
    } else if (code != CURLE_OK) {
      result.error = {static_cast<int>(code), transfer_errors()};
      result.may_pass = may_pass(code);
      result.is_stalled = code == CURLE_OPERATION_TIMEDOUT;
      result.detail = reason_;
    }
    const std::string tag = header("etag");
    if (is_strong_tag(tag)) result.entity_tag = tag;
    curl_off_t seconds = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RETRY_AFTER, &seconds);
    result.retry_after = std::chrono::seconds(seconds);
    return result;
  }

  long status() const {
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  std::string header(const char* name) const {
    curl_header* found = nullptr;
    const auto status = curl_easy_header(curl_.get(), name, 0, CURLH_HEADER, -1, &found);
    return status == CURLHE_OK ? found->value : "";
  }

  const Download& wanted_;
  PartialFile& file_;
  const DownloadOptions& options_;
  std::unique_ptr<CURL, FreeCurl> curl_;
  char reason_[CURL_ERROR_SIZE] = "";

  // Of one request:
  std::uint64_t from_ = 0;
  bool has_begun_ = false;
  bool is_refused_ = false;  // the body is that of an error page, or of another part
  std::exception_ptr failure_;
};

constexpr int kRangeNotSatisfiable = 416;
// A server that sent nothing for so long twice will not do better at the fourth time.
constexpr int kAttemptsAtSilence = 2;

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
  for (int i = 1; i < attempt && length < kLongestPause; ++i) length *= 2;
  const auto wished = std::max<std::chrono::milliseconds>(length, asked);
  std::this_thread::sleep_for(std::min(wished, kLongestPause));
}

/// Downloads the whole file from one address; throws when all attempts have failed.
void bring(const std::string& address, const Download& wanted, PartialFile& file,
    Transfer& transfer, const DownloadOptions& options) {
  std::string entity_tag;
  for (int attempt = 1;; ++attempt) {
    const std::uint64_t before = file.size();
    const auto result = transfer.get(address, entity_tag);
    entity_tag = result.entity_tag;
    if (result.error) {
      const std::string& detail = result.detail;
      const std::system_error error(
          result.error, concat("download ", address, detail.empty() ? "" : ": ", detail));
      const bool is_silent = result.is_stalled && file.size() == before;
      const int attempts =
          is_silent ? std::min(kAttemptsAtSilence, options.attempts) : options.attempts;
      if (!result.may_pass || attempt >= attempts) throw error;
      if (result.error.value() == kRangeNotSatisfiable) file.restart();
      notify(options, concat(error.what(), "; trying again"));
      pause(options, attempt, result.retry_after);
      continue;
    }
    const auto fault = fault_of(file, wanted);
    if (!fault) return;
    file.restart();
    // What was kept from before may be to blame.
    if (before == 0) throw DataError(*fault);
    notify(options, concat(address, ": ", *fault, "; trying again from its start"));
  }
}

/// Asks one address after the other.
void bring_from_any(const Download& wanted, PartialFile& file, const DownloadOptions& options) {
  if (file.size() == wanted.bytes && !fault_of(file, wanted)) return;
  if (file.size() >= wanted.bytes) file.restart();
  Transfer transfer(wanted, file, options);
  for (std::size_t i = 0;; ++i) {
    const bool last = i + 1 == wanted.addresses.size();
    const std::string& address = wanted.addresses[i];
    try {
      bring(address, wanted, file, transfer, options);
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

PartialFile::PartialFile(const std::filesystem::path& directory, const std::string& name)
    : directory_(OpenDirectory::open(directory)),
      name_(checked_name(name)),
      part_name_(concat(".", name, ".part")),
      path_(directory_.path_of(part_name_)),
      file_(locked(directory_, part_name_)),
      size_(size_of(file_.get(), path_)) {}

void PartialFile::append(std::span<const std::uint8_t> bytes) {
  // sha256() moves the file's offset.
  if (::lseek(file_.get(), static_cast<off_t>(size_), SEEK_SET) < 0) throw_errno("write", path_);
  write_all(file_.get(), bytes, path_);
  size_ += bytes.size();
}

void PartialFile::restart() {
  if (::ftruncate(file_.get(), 0) != 0) throw_errno("truncate", path_);
  size_ = 0;
}

std::string PartialFile::sha256() const {
  FileDescriptor again(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!again || ::lseek(again.get(), 0, SEEK_SET) != 0) throw_errno("read again", path_);
  InputFile source(std::move(again), path_);
  return sha256_of(source);
}

void PartialFile::finish() {
  if (::fchmod(file_.get(), 0644) != 0) throw_errno("set the mode of", path_);
  if (::fsync(file_.get()) != 0) throw_errno("sync", path_);
  rename();
  directory_.sync();
}

// NFS, CephFS and others know no renaming that spares what is there; a second name spares it, too.
void PartialFile::rename() const {
  const int folder = directory_.descriptor();
  const char *part = part_name_.c_str(), *whole = name_.c_str();
  if (::renameat2(folder, part, folder, whole, RENAME_NOREPLACE) == 0) return;
  const bool is_unknown = errno == EINVAL || errno == ENOSYS || errno == ENOTSUP;
  if (!is_unknown || ::linkat(folder, part, folder, whole, 0) != 0)
    throw_errno("rename to " + name_ + " the file", path_);
  if (::unlinkat(folder, part, 0) != 0) throw_errno("remove the first name of " + name_, path_);
}

void PartialFile::remove() {
  if (::unlinkat(directory_.descriptor(), part_name_.c_str(), 0) != 0) throw_errno("remove", path_);
}

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
