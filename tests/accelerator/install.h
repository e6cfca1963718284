#pragma once

namespace lockstep::emulated {

// The parts of install().
void install_allocators();
void install_guard();
void install_hooks();

}  // namespace lockstep::emulated
