#include "lockstep/launch/hang/rank_stack.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <linux/futex.h>
#include <memory>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of a part of the file

/// Reads that many values from a place in the file; none if they are not all there.
template <typename Value>
std::vector<Value> values_at(std::ifstream& file, std::uint64_t place, std::uint64_t count) {
  if (count > kMostBytes / sizeof(Value) || place > kMostBytes * 1024) return {};
  std::vector<Value> values(count);
  const auto bytes = static_cast<std::streamsize>(count * sizeof(Value));
  file.seekg(static_cast<std::streamoff>(place));
  if (!file.read(reinterpret_cast<char*>(values.data()), bytes)) return {};
  return values;
}

std::vector<Elf64_Shdr> sections_of(std::ifstream& file) {
  const auto header = values_at<Elf64_Ehdr>(file, 0, 1);
  const bool is_known = !header.empty() && std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) == 0 &&
                        header[0].e_ident[EI_CLASS] == ELFCLASS64 &&
                        header[0].e_shentsize == sizeof(Elf64_Shdr);
  if (!is_known) return {};
  return values_at<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum);
}

using Clock = std::chrono::steady_clock;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::size_t kMostThreads = 32;
constexpr std::size_t kMostText = std::size_t{1} << 20;

/// Waits until the count of answers is another one; returns false when the time is over.
bool await_answer(
    std::atomic<std::uint32_t>& answers, std::uint32_t before, Clock::time_point end) {
  while (answers.load(std::memory_order_acquire) == before) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    const timespec wait{
        .tv_sec = left.count() / 1'000'000'000, .tv_nsec = left.count() % 1'000'000'000};
    ::syscall(SYS_futex, &answers, FUTEX_WAIT, before, &wait, nullptr, 0);
  }
  return true;
}

/// A place in memory for the answers of one process.
class StackFile {
 public:
  explicit StackFile(ProgressSlot& slot)
      : slot_(slot), file_(::memfd_create("lockstep-stack", MFD_CLOEXEC)) {
    if (file_) slot_.stack_file.store(file_.get(), std::memory_order_release);
  }
  ~StackFile() { slot_.stack_file.store(-1, std::memory_order_release); }
  StackFile(const StackFile&) = delete;
  StackFile& operator=(const StackFile&) = delete;

  std::string text() const {
    std::string text(kMostText, '\0');
    const ssize_t size = ::pread(file_.get(), text.data(), text.size(), 0);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

 private:
  ProgressSlot& slot_;
  FileDescriptor file_;
};

/// Says whether the signal does what is meant: a process that has executed another program would
/// die of it.
bool answers_questions(const ProgressSlot& slot, const ProcessState& state) {
  const int signal = slot.stack_signal.load(std::memory_order_relaxed);
  return SIGRTMIN <= signal && signal <= SIGRTMAX && state.handles(signal) && state.letter() != 'T';
}

bool ask_thread(ProgressSlot& slot, pid_t process, pid_t thread, Clock::time_point deadline) {
  const std::uint32_t before = slot.answers.load(std::memory_order_acquire);
  const int signal = slot.stack_signal.load(std::memory_order_relaxed);
  if (::syscall(SYS_tgkill, process, thread, signal) != 0) return false;
  return await_answer(slot.answers, before, deadline);
}

/// Asks the main thread of a rank of Python, whose faulthandler writes the stacks to a file of the
/// rank's, piece by piece. Returns what it has written; nothing if the program has closed that
/// file, whose number may be another's by now.
std::string python_answer(ProgressSlot& slot, pid_t process, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kPause(10);
  const std::string path = concat("/proc/", process, "/fd/", slot.python_stacks.load(kRelaxed));
  std::error_code ignored;
  if (!std::filesystem::read_symlink(path, ignored).string().starts_with("/memfd:lockstep-stacks"))
    return "";
  const std::size_t before = text_in(path).size();
  if (::syscall(SYS_tgkill, process, process, slot.stack_signal.load(kRelaxed)) != 0) return "";
  std::string text;
  for (std::size_t last = 0; Clock::now() < deadline; last = text.size()) {
    std::this_thread::sleep_for(kPause);
    text = text_in(path).erase(0, before);
    const auto stacks = parse_python_stack(text, process);
    if (text.size() == last && !stacks.empty() && !stacks.front().frames.empty()) break;
  }
  return text;
}

// A C function's name may be what C++ takes for a type's: f for float.
std::string demangled(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return symbol;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? std::string(name.get()) : symbol;
}

}  // namespace

char state_in(std::string_view stat) {
  const auto name_end = stat.rfind(") ");
  return name_end == std::string_view::npos || name_end + 2 >= stat.size() ? '?'
                                                                           : stat[name_end + 2];
}

std::string_view status_value(std::string_view status, std::string_view name) {
  while (!status.empty()) {
    const auto end = std::min(status.find('\n'), status.size());
    const std::string_view line = status.substr(0, end);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(":")) {
      const auto value = line.substr(name.size() + 1);
      return value.substr(std::min(value.find_first_not_of(" \t"), value.size()));
    }
    status.remove_prefix(std::min(end + 1, status.size()));
  }
  return {};
}

bool holds_signal(std::string_view mask, int signal) {
  const auto from_end = static_cast<std::size_t>((signal - 1) / 4);
  if (from_end >= mask.size()) return false;
  const char digit = mask[mask.size() - 1 - from_end];
  const int value = digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10;
  return (value >> ((signal - 1) % 4) & 1) != 0;
}

char ProcessState::letter() const { return state_in(text_in(concat("/proc/", process_, "/stat"))); }

bool ProcessState::is_traced() const {
  const std::string status = text_in(concat("/proc/", process_, "/status"));
  const std::string_view tracer = status_value(status, "TracerPid");
  return !tracer.empty() && tracer != "0";
}

bool ProcessState::handles(int signal) const {
  const std::string status = text_in(concat("/proc/", process_, "/status"));
  return holds_signal(status_value(status, "SigCgt"), signal);
}

std::vector<pid_t> ProcessState::threads() const {
  std::vector<pid_t> threads;
  std::error_code error;
  for (std::filesystem::directory_iterator task(concat("/proc/", process_, "/task"), error), end;
       !error && task != end; task.increment(error))
    if (const auto id = parse_number<pid_t>(task->path().filename().string()))
      threads.push_back(*id);
  std::sort(threads.begin(), threads.end(), [this](pid_t a, pid_t b) {
    return std::pair(a != process_, a) < std::pair(b != process_, b);
  });
  return threads;
}

std::string ProcessState::thread_text(pid_t thread) const {
  const std::string folder = concat("/proc/", process_, "/task/", thread, "/");
  const std::string waits_in = text_in(folder + "wchan");
  const std::string system_call = text_in(folder + "syscall");
  std::string text = concat("state ", state_in(text_in(folder + "stat")));
  if (!waits_in.empty() && waits_in != "0") text += concat(", in the kernel's ", waits_in);
  if (!system_call.empty())
    text += concat(", system call ", system_call.substr(0, system_call.find_first_of(" \n")));
  return text;
}

SymbolTable::SymbolTable(const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name, ignored)) return;  // another may block
  std::ifstream file(name, std::ios::binary);
  const auto sections = sections_of(file);
  const auto table = std::find_if(sections.begin(), sections.end(),
      [](const Elf64_Shdr& section) { return section.sh_type == SHT_SYMTAB; });
  if (table == sections.end() || table->sh_link >= sections.size()) return;
  const Elf64_Shdr& names = sections[table->sh_link];
  const auto letters = values_at<char>(file, names.sh_offset, names.sh_size);
  names_.assign(letters.begin(), letters.end());
  const auto symbols =
      values_at<Elf64_Sym>(file, table->sh_offset, table->sh_size / sizeof(Elf64_Sym));
  for (const Elf64_Sym& symbol : symbols) {
    const bool is_function = ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size > 0;
    if (is_function && symbol.st_name < names_.size())
      functions_.push_back({symbol.st_value, symbol.st_value + symbol.st_size, symbol.st_name});
  }
  std::sort(functions_.begin(), functions_.end(),
      [](const Function& a, const Function& b) { return a.begin < b.begin; });
}

std::optional<std::string> SymbolTable::at(std::uint64_t address) const {
  auto found = std::upper_bound(functions_.begin(), functions_.end(), address,
      [](std::uint64_t wanted, const Function& function) { return wanted < function.begin; });
  if (found == functions_.begin()) return std::nullopt;
  --found;
  // An address to return to may be the first one after a function that never returns.
  if (address > found->end) return std::nullopt;
  return std::string(names_.c_str() + found->name);
}

// A line is FILE(SYMBOL+OFFSET)[ADDRESS]; the symbol, or all in the parentheses, may be missing.
// Without a symbol the offset is an address of the file.
std::string readable_frame(const std::string& line, SymbolTables& tables) {
  const auto open = line.rfind('('), close = line.rfind(')');
  if (open == line.npos || close == line.npos || close < open) return line;
  const std::string file = line.substr(0, open);
  const std::string place = line.substr(open + 1, close - open - 1);
  const auto plus = place.rfind('+');
  std::string symbol = place.substr(0, plus);
  const std::string base = file.substr(file.rfind('/') + 1);
  if (symbol.empty() && plus != place.npos) {
    const auto table = tables.try_emplace(file, file).first;
    const std::uint64_t address = std::strtoull(place.c_str() + plus + 1, nullptr, 16);
    symbol = table->second.at(address).value_or("");
  }
  if (symbol.empty()) return base + place;
  return concat(demangled(symbol), " in ", base);
}

std::vector<ThreadStack> parse_stacks(const std::string& text, SymbolTables& tables) {
  constexpr std::string_view kThread = "thread ";
  std::vector<ThreadStack> stacks;
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with(kThread)) {
      stacks.push_back({.thread = parse_number<pid_t>(line.substr(kThread.size())).value_or(0)});
    } else if (!stacks.empty() && !line.empty()) {
      stacks.back().frames.push_back(readable_frame(line, tables));
    }
  }
  return stacks;
}

std::vector<ThreadStack> parse_python_stack(const std::string& text, pid_t thread) {
  std::vector<ThreadStack> stacks;
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with("Current thread ")) {
      stacks.push_back({.thread = thread});
    } else if (!stacks.empty()) {
      if (!line.starts_with("  ")) break;
      stacks.back().frames.push_back(line.substr(2));
    }
  }
  return stacks;
}

std::vector<ThreadStack> ask_for_stacks(
    ProgressSlot& slot, pid_t process, Clock::time_point deadline, SymbolTables& tables) {
  constexpr std::chrono::milliseconds kForOne(200);  // that does not let the signal in
  const ProcessState state(process);
  std::vector<ThreadStack> stacks;
  if (answers_questions(slot, state) && slot.python_stacks.load(kRelaxed) >= 0) {
    stacks = parse_python_stack(python_answer(slot, process, deadline), process);
  } else if (answers_questions(slot, state)) {
    const StackFile file(slot);
    std::vector<pid_t> threads = state.threads();
    threads.resize(std::min(threads.size(), kMostThreads));
    for (const pid_t thread : threads) {
      const auto patience =
          thread == process ? deadline : std::min(deadline, Clock::now() + kForOne);
      if (!ask_thread(slot, process, thread, patience) && thread == process) break;
    }
    stacks = parse_stacks(file.text(), tables);
  }
  if (stacks.empty() || stacks.front().thread != process)
    stacks.insert(stacks.begin(), {process, {state.thread_text(process)}});
  return stacks;
}

}  // namespace lockstep::launch
