//! Datasets in cache: where they lie, what is recorded of them, how they leave.

pub(crate) mod filemap;
pub(crate) mod kept_open;
pub(crate) mod node_dir;
pub(crate) mod part;
pub(crate) mod record;
pub(crate) mod room;
pub(crate) mod sharing;
