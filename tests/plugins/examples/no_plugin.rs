//! A library in Rust that is no plugin: it exports a function, but no module.

/// Something to export.
#[unsafe(no_mangle)]
pub extern "C" fn scr_no_plugin() -> u32 {
    7
}
