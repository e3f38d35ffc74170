//! A library that leaves the process as if all were well, as soon as it is loaded.

extern "C" fn at_load() {
    std::process::exit(0);
}

/// The dynamic linker runs this when it has mapped the library.
// SAFETY: the section holds pointers to functions without arguments, and this is one.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
