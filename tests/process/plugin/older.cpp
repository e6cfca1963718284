// What a plugin of an older version looks like: all that is asked of it is what it was made for.

namespace {
const char* contents[] = {"plugin 0, LibTorch 1.0", nullptr};
}

extern "C" const void* lockstep_plugin() { return contents; }
