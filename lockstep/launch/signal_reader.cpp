#include "lockstep/launch/signal_reader.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace lockstep::launch {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

SignalReader::SignalReader(const std::vector<int>& signals) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) {
    if (!is_ignored(signal)) ::sigaddset(&set, signal);
  }
  descriptor_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor_) throw_errno("launch: watch signals");
  ::sigprocmask(SIG_BLOCK, &set, &before_);
}

SignalReader::~SignalReader() {
  read();  // what came at the very end has been served: it must not strike once unblocked
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::vector<int> SignalReader::read() const {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(descriptor_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    signals.push_back(static_cast<int>(info.ssi_signo));
  }
  return signals;
}

}  // namespace lockstep::launch
