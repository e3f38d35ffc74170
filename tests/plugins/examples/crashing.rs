//! A library that ends the process as soon as it is loaded.

extern "C" fn at_load() {
    std::process::abort();
}

/// The dynamic linker runs this when it has mapped the library.
// SAFETY: the section holds pointers to functions without arguments, and this is one.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
