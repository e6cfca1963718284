#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace lockstep::net {

/// Starts a thread that takes no signals: those are for the thread that starts it.
template <typename Body>
std::thread without_signals(Body body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace lockstep::net
