//! How far a command is, for who looks on.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, and only if that is a terminal.
pub(crate) fn bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let look = "{bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left: {wide_msg}";
    if let Ok(style) = ProgressStyle::with_template(look) {
        bar.set_style(style);
    }
    bar
}
