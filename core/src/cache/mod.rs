//! Datasets in cache: where they lie, what is recorded of them, how they leave.
//!
//! | part | what it is |
//! |---|---|
//! | `record` | what there is to know of one rank's part of a dataset |
//! | `filemap` | the journal of a part: what was recorded when |
//! | `part` | where a part lies, and how it is removed |
//! | `kept_open` | redundancy files whose memory is used again |
//! | `room` | whether the old dataset and the new one fit at the same time |
//! | `sharing` | which nodes see the same folder |
//! | `node_dir` | their folders in it |

pub(crate) mod filemap;
pub(crate) mod kept_open;
pub(crate) mod node_dir;
pub(crate) mod part;
pub(crate) mod record;
pub(crate) mod room;
pub(crate) mod sharing;
