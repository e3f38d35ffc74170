//! A library that never returns from being loaded.

extern "C" fn at_load() {
    loop {
        std::thread::park();
    }
}

/// The dynamic linker runs this when it has mapped the library.
// SAFETY: the section holds pointers to functions without arguments, and this is one.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
