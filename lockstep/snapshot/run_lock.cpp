#include "lockstep/snapshot/run_lock.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/json_object.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/output_file.h"

namespace lockstep {
namespace {

/// The process that works in a folder.
struct Owner {
  std::string host;
  pid_t pid = 0;
  std::string started;   ///< for people
  std::string computer;  ///< boot and pid namespace: where the pid means something
  std::string birth;     ///< in the clock ticks of that boot: tells it from a later one of its pid
};

std::string computer_here() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat pids {};
  ::stat("/proc/self/ns/pid", &pids);
  return concat(boot, '/', pids.st_ino);
}

/// Returns the clock tick in which a process began; nothing if it is not there or has ended.
std::string birth_of(pid_t pid) {
  const std::string stat = text_in(concat("/proc/", pid, "/stat"));
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return "";
  constexpr std::size_t kState = 0, kBirth = 19;  // the 3rd and the 22nd field
  const std::vector<std::string> fields = split(std::string_view(stat).substr(name_end + 2), ' ');
  const bool has_ended = fields.size() <= kBirth || fields[kState] == "Z" || fields[kState] == "X";
  return has_ended ? "" : fields[kBirth];
}

template <typename Object>
void list_fields(Object& object, Owner& owner) {
  object("host", owner.host);
  object("pid", owner.pid);
  object("started", owner.started);
  object("computer", owner.computer);
  object("birth", owner.birth);
}

std::string own_record() {
  const Owner own{host_name(), ::getpid(), utc_now(), computer_here(), birth_of(::getpid())};
  using Json = JsonWriter::Json;
  return JsonWriter::json_of(own).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<Owner> parse_owner(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    return JsonReader::read<Owner>(JsonFields(json, kRunLock));
  } catch (const DataError&) {
    return std::nullopt;  // of another version, or somebody's own
  }
}

std::optional<Owner> owner_in(const FileDescriptor& file) {
  std::array<char, 4096> bytes{};
  const ssize_t size = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  return size <= 0 ? std::nullopt
                   : parse_owner(std::string(bytes.data(), static_cast<std::size_t>(size)));
}

enum class Life { kLives, kEnded, kUnknown };

Life life_of(const Owner& owner) {
  if (owner.computer != computer_here()) return Life::kUnknown;
  return birth_of(owner.pid) == owner.birth ? Life::kLives : Life::kEnded;
}

std::string owner_text(const std::optional<Owner>& owner) {
  if (!owner) return "another process";
  return concat("process ", owner->pid, " on ", printable_path(owner->host), ", started ",
      printable_path(owner->started));
}

[[noreturn]] void refuse(const std::string& folder, const std::optional<Owner>& owner) {
  throw InvalidArgument(concat("a run is under way in ", folder, ": ", owner_text(owner),
      "; wait for its end, stop it, or name another folder"));
}

// A process that has just taken the lock writes its record next.
std::optional<Owner> awaited_owner(const FileDescriptor& file) {
  std::optional<Owner> owner = owner_in(file);
  for (int look = 0; look < 50 && !owner; ++look, owner = owner_in(file))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return owner;
}

// Without locks only what the owner left can say whether it lives.
void check_is_free(const OpenDirectory& opened, const std::string& name,
    const std::optional<Owner>& owner, int refusal) {
  if (!owner) return;
  const std::string folder = opened.path().string();
  const Life life = life_of(*owner);
  if (life == Life::kLives) refuse(folder, owner);
  check(life == Life::kEnded, folder, " belongs to process ", owner->pid, " on ",
      printable_path(owner->host), ", started ", printable_path(owner->started),
      ", and its file system cannot lock files (", std::generic_category().message(refusal),
      "), so it cannot be determined whether that run has ended; if it has, remove ",
      opened.path_of(name));
}

// Tells the user once what it is waiting for.
LockedFile awaited(
    const OpenDirectory& folder, const std::string& name, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kBetweenTries(100), kUnsaid(1000);
  const auto begin = std::chrono::steady_clock::now();
  bool is_said = false;
  while (true) {
    LockedFile lock = open_locked(folder, name);
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (lock.refusal != EWOULDBLOCK || waited >= patience) return lock;
    if (waited >= kUnsaid && !std::exchange(is_said, true))
      std::cerr << concat("lockstep: waiting for ", folder.path_of(name), ", which ",
          owner_text(owner_in(lock.file)), " still has; for ",
          std::chrono::ceil<std::chrono::seconds>(patience).count(), " s at most\n");
    std::this_thread::sleep_for(kBetweenTries);
  }
}

FileDescriptor taken(
    const OpenDirectory& folder, const std::string& name, std::chrono::milliseconds patience) {
  LockedFile lock = awaited(folder, name, patience);
  const std::string path = folder.path().string();
  if (lock.refusal == EWOULDBLOCK) refuse(path, awaited_owner(lock.file));
  if (lock.refusal != 0) check_is_free(folder, name, owner_in(lock.file), lock.refusal);
  const std::string file = folder.path_of(name), text = own_record();
  if (::ftruncate(lock.file.get(), 0) != 0) throw_errno("truncate", file);
  write_all(
      lock.file.get(), {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, file);
  ::fsync(lock.file.get());  // so that other hosts can read it; where it fails, they only know less
  return std::move(lock.file);
}

}  // namespace

RunLock::RunLock(const std::string& folder, std::string name, std::chrono::milliseconds patience)
    : made_folder_(make_folders(folder)),
      folder_(OpenDirectory::open(folder)),
      name_(std::move(name)),
      file_(taken(folder_, name_, patience)) {}

RunLock::~RunLock() {
  // Another's, where ours was removed by hand; its name is then not ours to remove.
  struct stat own {
  }, named{};
  const bool is_ours =
      ::fstat(file_.get(), &own) == 0 &&
      ::fstatat(folder_.descriptor(), name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
      own.st_dev == named.st_dev && own.st_ino == named.st_ino;
  if (is_ours) ::unlinkat(folder_.descriptor(), name_.c_str(), 0);
  if (made_folder_) ::rmdir(folder_.path().c_str());
}

void check_has_no_owner(const std::string& folder) {
  const std::string path = folder + "/" + kRunLock;
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const std::optional<Owner> owner = file ? owner_in(file) : std::nullopt;
  if (owner && owner->pid != ::getpid() && life_of(*owner) == Life::kLives) refuse(folder, owner);
}

}  // namespace lockstep
