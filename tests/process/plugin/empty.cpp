// A shared library that is no plugin.

extern "C" int lockstep_something_else() { return 3; }
